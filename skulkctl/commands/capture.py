"""`skulkctl capture`: diagnostics of an instance or one of its runners, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Invocation, Output, Reach, new_app, verb
from skulkctl.errors import NotFound, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

if TYPE_CHECKING:
    from skulkctl.capture.bundles import Evidence
    from skulkctl.verdict.ranks import Group, Rank

app = new_app()

EXAMPLES = """
  skulkctl capture 7f3c              all ranks of this instance
  skulkctl capture 7f3c/1            rank 1 of it
  skulkctl capture 7f3c --file hang.tar.zst
  skulkctl capture 7f3c --report hang.html
  skulkctl capture --from hang.tar.zst --report hang.html
"""


@verb(app, "capture", Reach, Output, examples=EXAMPLES)
def capture(
    call: Invocation,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="INSTANCE[/RANK]|RUNNER",
            help="Id or prefix (default: the only instance).",
        ),
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="FILE", help="Write the bundle to this file.")
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            "--sample", metavar="SECONDS", min=1, max=10, help="Sample the processes for this long."
        ),
    ] = 3.0,
    no_samples: Annotated[
        bool, typer.Option("--no-samples", help="Do not sample the processes.")
    ] = False,
    page: Annotated[
        str | None,
        typer.Option("--report", metavar="FILE.html", help="Also write a page for people."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="BUNDLE", help="Write the report of this bundle."),
    ] = None,
) -> int:
    """Save an instance's diagnostics to one file. The instance is not changed.

    The bundle (.tar.zst) holds the timeline and verdict, and for each rank: diagnostics, flight
    recorder, stacks (py-spy where installed), kernel state, MLX memory and the last log lines.
    Secrets are redacted. Exit 8 if some ranks could not be captured. --report also writes one HTML
    page with all of it, which opens offline; --from makes it from an earlier bundle.
    """
    if source is not None:
        return _report_of_bundle(call, what, source, page)
    from skulkctl.capture.bundles import about_of, gather, limit_s, write_bundle
    from skulkctl.report.file import check_free, write_report
    from skulkctl.timeline.frames import Watch
    from skulkctl.verdict.ranks import groups_of

    if page is not None:
        check_free(Path(page))
    frame = call.daemon.run(Watch().next_frame())
    group, ranks = _find(groups_of(frame.timeline, frame.names), what)
    call.if_interrupted = "nothing was changed or written"
    captured = gather(group, ranks, seconds, not no_samples)
    evidence = call.daemon.within(limit_s(seconds)).run(captured)
    path = write_bundle(evidence, Path.cwd(), None if file is None else Path(file))
    if page is not None:
        write_report(Path(page), evidence.members, about_of(evidence), path)
    _show(call, evidence, path, page)
    return ExitCode.PARTIAL if evidence.failed else ExitCode.DONE


def _show(call: Invocation, evidence: Evidence, path: Path, page: str | None) -> None:
    document = {
        "file": str(path),
        "report": page,
        "instanceId": evidence.group.instance_id,
        "ranks": [rank.rank for rank in evidence.ranks],
        "failed": evidence.failed,
    }
    lines = f"captured to {path}\n" + (f"report in {page}\n" if page else "")
    write(call.style.single("Capture", document, str(path), lambda _: lines))
    call.messages.hint(f"skulkctl timeline --from {path}")
    for rank, why in evidence.failed.items():
        call.messages.warning(f"{rank}: {why}")


def _report_of_bundle(call: Invocation, what: str | None, source: str, page: str | None) -> int:
    """The page of a bundle that was written earlier; no daemon is asked."""
    import json

    from skulkctl.capture.bundles import open_bundle
    from skulkctl.report.file import write_report

    if page is None or what is not None:
        why = "name the page:  --report FILE.html" if page is None else f"{what} is not needed"
        raise UsageMistake("--from makes a report of a bundle", why)
    members = open_bundle(Path(source))
    try:
        about = json.loads(members.get("manifest.json", b"{}"))
    except ValueError:
        about = {}
    write_report(Path(page), members, about, Path(source))
    document = {"file": source, "report": page}
    write(call.style.single("Capture", document, page, lambda _: f"report in {page}\n"))
    return ExitCode.DONE


def _find(groups: list[Group], typed: str | None) -> tuple[Group, tuple[Rank, ...]]:
    """The ranks that are meant: of an instance, one rank of it, or of one runner."""
    from skulkctl.names import Candidate, find_one, model_aliases

    if typed is None:
        if len(groups) == 1:
            return groups[0], groups[0].ranks
        why = "nothing is placed" if not groups else f"{len(groups)} instances are placed"
        raise UsageMistake("specify what to capture", why, hints=["skulkctl instances"])
    candidates = [
        Candidate(
            (group, group.ranks),
            (group.instance_id,),
            model_aliases(group.model_id),
            f"{group.instance_id}  {group.model_id}",
        )
        for group in groups
    ]
    candidates += [
        Candidate((group, (rank,)), (rank.runner_id,), (), f"{rank.runner_id}  {rank}")
        for group in groups
        for rank in group.ranks
    ]
    found = find_one("instance", candidates, typed)
    if found is not None:
        return found
    name, slash, number = typed.rpartition("/")
    found = find_one("instance", candidates, name) if slash else None
    if found is None:
        raise NotFound(f"no instance or runner {typed}", hints=["skulkctl instances"])
    group, _ = found
    ranks = tuple(rank for rank in group.ranks if str(rank.rank) == number)
    if not ranks:
        known = ", ".join(str(rank.rank) for rank in group.ranks)
        raise NotFound(f"{group.short} has no rank {number}", f"ranks: {known}")
    return group, ranks

"""`skulkctl capture`: evidence of a runner or a whole placement, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import NotFound, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, verb
from skulkctl.stdout import write

if TYPE_CHECKING:
    from skulkctl.verdict.ranks import Group, Rank

app = new_app()

EXAMPLES = """
  skulkctl capture 7f3c              every rank of this placement
  skulkctl capture 7f3c/1            rank 1 of it
  skulkctl capture 7f3c --file hang.tar.zst
"""


@verb(app, "capture", REACH, FORMAT, examples=EXAMPLES)
def capture(
    call: Invocation,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="INSTANCE[/RANK]|RUNNER",
            help="Id or prefix; without it the only placement there is.",
        ),
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="FILE", help="Where the bundle goes.")
    ] = None,
    seconds: Annotated[
        float,
        typer.Option("--sample", metavar="SECONDS", min=1, max=10, help="How long to look."),
    ] = 3.0,
    no_samples: Annotated[
        bool, typer.Option("--no-samples", help="Do not look into the processes.")
    ] = False,
) -> int:
    """Write everything known about a placement into one bundle; changes nothing.

    The bundle (.tar.zst) holds the timeline and verdict, and for each rank: diagnostics, flight
    recorder, stacks (py-spy where installed), kernel state, MLX memory and the last log lines.
    Secrets are hidden. Exit 8 when some ranks could not be captured.
    """
    from skulkctl.capturing import capture_ranks
    from skulkctl.tui.feed import LiveFeed
    from skulkctl.verdict.ranks import groups_of

    frame = LiveFeed(call.target, call.timeout_s(15.0), call.daemon).poll()
    group, ranks = _find(groups_of(frame.timeline, frame.names), what)
    bundle = capture_ranks(
        call.target,
        group,
        ranks,
        Path.cwd(),
        file=None if file is None else Path(file),
        sample_s=seconds,
        samples=not no_samples,
    )
    document = {
        "file": str(bundle.path),
        "instanceId": group.instance_id,
        "ranks": [rank.rank for rank in ranks],
        "failed": bundle.failed,
    }
    path = str(bundle.path)
    write(call.style.single("Capture", document, path, lambda _: f"captured to {path}\n"))
    call.talk.hint(f"skulkctl timeline --from {path}")
    for rank, why in bundle.failed.items():
        call.talk.warning(f"{rank}: {why}")
    return ExitCode.PARTIAL if bundle.failed else ExitCode.DONE


def _find(groups: list[Group], typed: str | None) -> tuple[Group, tuple[Rank, ...]]:
    """The ranks that are meant: of an instance, one rank of it, or of one runner."""
    from skulkctl.names import Candidate, find_one, model_aliases

    if typed is None:
        if len(groups) == 1:
            return groups[0], groups[0].ranks
        why = "nothing is placed" if not groups else f"{len(groups)} instances are placed"
        raise UsageMistake("say what to capture", why, hints=["skulkctl instances"])
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
    ranks = tuple(one for one in group.ranks if str(one.rank) == number)
    if not ranks:
        known = ", ".join(str(one.rank) for one in group.ranks)
        raise NotFound(f"{group.short} has no rank {number}", f"ranks: {known}")
    return group, ranks

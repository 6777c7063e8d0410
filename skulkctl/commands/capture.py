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

    frame = LiveFeed(call.target, call.timeout_s(15.0)).poll()
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
    if typed is None:
        if len(groups) == 1:
            return groups[0], groups[0].ranks
        why = "nothing is placed" if not groups else f"{len(groups)} placements are there"
        raise UsageMistake("say what to capture", why, hints=["skulkctl instances"])
    name, slash, number = typed.partition("/")
    found = [group for group in groups if group.instance_id.startswith(name)]
    if len(found) == 1 and name:
        group = found[0]
        ranks = tuple(one for one in group.ranks if not slash or str(one.rank) == number)
        if ranks:
            return group, ranks
        raise NotFound(
            f"{group.short} has no rank {number}",
            f"ranks: {', '.join(str(one.rank) for one in group.ranks)}",
        )
    for group in groups:
        mine = tuple(one for one in group.ranks if one.runner_id.startswith(typed))
        if len(mine) == 1:
            return group, mine
    many = f"{len(found)} placements begin with it" if found else "no instance or runner has it"
    raise NotFound(f"no one placement is meant by {typed}", many, hints=["skulkctl instances"])

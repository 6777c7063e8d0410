"""An instance that hangs is captured before `cancel` or `delete` touches it.

Either hides where the ranks were. What does not hang is not captured unless the operator asks for
it, because that costs the runners seconds.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.errors import CliError

if TYPE_CHECKING:
    from skulkctl.cli import Invocation
    from skulkd.wire.timeline import Timeline

CaptureOption = Annotated[
    bool | None,
    typer.Option(
        "--capture/--no-capture",
        help="Write a capture bundle first (default: only when the instance hangs).",
        show_default=False,
    ),
]


def capture_first(
    call: Invocation, wish: bool | None, *, instance: str | None = None, request: str | None = None
) -> Path | None:
    """The bundle of the instance, or of the one that works on this request; None if none is due.

    Raises CliError only when the operator asked for it: nothing has been changed then.
    """
    if wish is False:
        return None
    try:
        return _capture(call, instance, request, always=wish is True)
    except CliError as error:
        if wish:
            skip = "continue without a capture:  --no-capture"
            raise type(error)(
                f"nothing was changed, because the capture failed: {error.what}",
                *error.why,
                hints=[*error.hints, skip],
                details=error.details,
            ) from error
        call.messages.detail(f"the capture failed: {error.what}")
        return None


def _capture(
    call: Invocation, instance: str | None, request: str | None, *, always: bool
) -> Path | None:
    from skulkctl.capture.bundles import gather, limit_s, write_bundle
    from skulkctl.errors import NotFound
    from skulkctl.timeline.frames import Watch
    from skulkctl.verdict import State, assess

    frame = call.daemon.run(Watch().next_frame())
    instance = instance or _working_on(frame.timeline, request or "")
    verdict = assess(frame.timeline, names=frame.names)
    group = next((group for group in verdict.groups if group.instance_id == instance), None)
    if group is None:
        if always:
            raise NotFound(f"no runner works on {request or instance}")
        return None
    finding = verdict.of(group.instance_id)
    hangs = finding is not None and finding.state is State.HANG
    if not (hangs or always):
        return None
    # On a connection of its own: what it sends is no change that an interrupt should warn of.
    with closing(call.new_daemon()) as daemon:
        evidence = daemon.within(limit_s()).run(gather(group, group.ranks))
    path = write_bundle(evidence, Path.cwd())
    call.messages.note(f"{'the instance hangs and was ' if hangs else ''}captured first: {path}")
    for rank, why in evidence.failed.items():
        call.messages.warning(f"not in the bundle: {rank}: {why}")
    return path


def _working_on(timeline: Timeline, typed: str) -> str | None:
    """The instance whose runners work on this task or command."""
    for runner in timeline.runners:
        if typed and typed in (runner.active_task_id, runner.active_command_id):
            return runner.instance_id
    return None

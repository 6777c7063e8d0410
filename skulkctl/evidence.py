"""Evidence before destruction: a placement that hangs is captured before it is touched.

A cancel or a delete hides where the ranks stood. What does not hang is not captured unless the
operator says so, because it costs the runners seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.errors import CliError

if TYPE_CHECKING:
    from skulkctl.invocation import Invocation
    from skulkctl.views.read import Document

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
    """The bundle of the placement, or of the one that works on this request; None if none is due.

    Raises CliError only when the operator wanted it: nothing has been changed then.
    """
    if wish is False:
        return None
    try:
        return _capture(call, instance, request, always=wish is True)
    except CliError as error:
        if wish:
            skip = "go on without:  --no-capture"
            raise type(error)(
                f"nothing was changed, because it could not be captured: {error.what}",
                *error.why,
                hints=[*error.hints, skip],
                details=error.details,
            ) from error
        call.talk.detail(f"not captured first: {error.what}")
        return None


def _capture(
    call: Invocation, instance: str | None, request: str | None, *, always: bool
) -> Path | None:
    from skulkctl.capturing import capture_ranks
    from skulkctl.errors import NotFound
    from skulkctl.tui.feed import LiveFeed
    from skulkctl.verdict import judge
    from skulkctl.verdict.ranks import groups_of
    from skulkctl.verdict.shape import State

    frame = LiveFeed(call.target, call.timeout_s(15.0), call.daemon).poll()
    instance = instance or _working_on(frame.timeline, request or "")
    groups = [one for one in groups_of(frame.timeline, frame.names) if one.instance_id == instance]
    if not groups:
        if always:
            raise NotFound(f"no runner works on {request or instance}")
        return None
    findings = judge(frame.timeline, names=frame.names).findings
    hangs = any(one.state is State.HANG and one.instance_id == instance for one in findings)
    if not (hangs or always):
        return None
    bundle = capture_ranks(call.target, groups[0], groups[0].ranks, Path.cwd())
    call.talk.note(f"{'it hangs, so it was ' if hangs else ''}captured first: {bundle.path}")
    for rank, why in bundle.failed.items():
        call.talk.warning(f"not in the bundle: {rank}: {why}")
    return bundle.path


def _working_on(timeline: Document, typed: str) -> str | None:
    """The instance whose runners say that they work on this task or command."""
    from skulkctl.views.read import sequence, text

    for runner in sequence(timeline, "runners"):
        ids = (text(runner, "activeTaskId") or "", text(runner, "activeCommandId") or "")
        if typed and typed in ids:
            return text(runner, "instanceId")
    return None

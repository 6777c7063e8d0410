"""`skulkctl logs`: the last lines of a daemon or a runner, asked over the API."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import RouteMissing, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, verb
from skulkctl.stdout import write_now

if TYPE_CHECKING:
    from skulkctl.views.read import Document

app = new_app()

EXAMPLES = """
  skulkctl logs                            the node that answers
  skulkctl logs kite2 --lines 50
  skulkctl logs kite2 --before 2h          what it said before that time, also before a restart
  skulkctl logs kite2 --runner 91aa --follow
"""

_EVERY_S = 1.0


@verb(app, "logs", REACH, FORMAT, examples=EXAMPLES)
def logs(
    call: Invocation,
    node: Annotated[
        str | None,
        typer.Argument(metavar="NODE", help="Name, id, or a prefix of either."),
    ] = None,
    runner: Annotated[
        str | None,
        typer.Option("--runner", metavar="ID", help="What this runner's process printed."),
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", min=1, max=5000, help="How many.")
    ] = 200,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is printed from now on.")
    ] = False,
    before: Annotated[
        str | None,
        typer.Option(
            "--before", metavar="TIME", help="Lines before it: 2h ago, or 2026-05-04T14:00Z."
        ),
    ] = None,
) -> int:
    """Print the last log lines of a node's daemon, or of one of its runners.

    At most 5000 at a time; older ones, also of earlier starts, with --before. Secrets are hidden.
    With -o json or yaml one document is printed; with -o jsonl an object per line, which also
    goes with --follow. Ctrl-C ends --follow.
    """
    from skulkctl.documents import refuse_follow, show_document
    from skulkctl.views.read import sequence

    refuse_follow(call, follow)
    if before is not None and (follow or runner):
        raise UsageMistake("--before goes neither with --follow nor with --runner")
    moment = None if before is None else _moment(before)
    place, runner_id = _place(call, node, runner)
    query = {"lines": str(lines), **({"runner_id": runner_id} if runner_id else {})}
    query |= {"before": moment} if moment else {}
    answer = _ask(call, place, query)
    if call.format in ("json", "yaml"):
        show_document(call, "LogLineList", sequence(answer, "lines"))
        return ExitCode.DONE
    if not _show(call, answer) or not follow:
        return ExitCode.DONE
    while True:
        time.sleep(_EVERY_S)
        answer = _ask(call, place, {**query, "lines": "5000", "after": str(answer["cursor"])})
        if answer.get("lost"):
            call.talk.warning(f"{answer['lost']} lines were lost in between")
        if not _show(call, answer):
            return ExitCode.DONE


def _moment(typed: str) -> str:
    """A time, or an age, as the API wants it."""
    from datetime import UTC, datetime, timedelta

    from skulkctl.units import parse_duration, parse_time

    told = parse_time(typed)
    if told is None:
        try:
            told = datetime.now(UTC) - timedelta(seconds=parse_duration(typed))
        except ValueError as error:
            raise UsageMistake(f"--before: neither a time nor an age: {error}") from None
    return told.astimezone(UTC).isoformat()


def _place(call: Invocation, node: str | None, runner: str | None) -> tuple[str, str | None]:
    """The path to ask, and the runner's whole id."""
    from skulkctl.client import path_segment
    from skulkctl.names import Candidate, find_one
    from skulkctl.nodes.rows import find_node, node_items
    from skulkctl.tui.feed import PATHS
    from skulkctl.views.read import sequence, text

    node_id = None
    if node is not None:
        node_id = find_node(node_items(call.daemon.state()), node)["id"]
    if runner is not None:
        known = [
            (text(one, "nodeId") or "", text(one, "runnerId") or "")
            for one in sequence(call.client.get_first(*PATHS), "runners")
        ]
        candidates = [
            Candidate(one, (one[1],), (), one[1]) for one in known if node_id in (None, one[0])
        ]
        # A runner that has ended may still have a log; its whole id is needed then.
        found = find_one("runner", candidates, runner)
        if found is not None:
            node_id, runner = found
    base = "node" if node_id is None else f"cluster/{path_segment(node_id)}"
    return f"/v1/diagnostics/{base}/logs", runner


def _ask(call: Invocation, path: str, query: dict[str, str]) -> Document:
    from skulkctl.views.read import mapping

    try:
        return mapping(call.client.get(path, **query))
    except RouteMissing as error:
        raise RouteMissing(
            "this server cannot show its log",
            "a stock node logs to its own stderr only",
            details=error.details,
        ) from error


def _show(call: Invocation, answer: Document) -> bool:
    """Print the lines; False when nobody reads them any more."""
    from skulkctl.layout import hanging
    from skulkctl.output import to_json
    from skulkctl.screen import harmless
    from skulkctl.views.read import sequence, text

    told = []
    for one in sequence(answer, "lines"):
        if call.format == "jsonl":
            told.append(to_json(one, indent=None))
            continue
        at, level = text(one, "at"), text(one, "level")
        head = f"{at[:23]}Z {level:<8} " if at and level else ""
        lines = hanging(head, harmless(text(one, "text") or ""), call.style.room)
        told.append("".join(f"{line}\n" for line in lines))
    return write_now("".join(told)) if told else True

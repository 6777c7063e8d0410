"""`skulkctl logs`: the last lines of a daemon or a runner, asked over the API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Invocation, Output, Reach, moment, new_app, values, verb
from skulkctl.errors import UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write_now

if TYPE_CHECKING:
    from skulkctl.daemon.client import Daemon
    from skulkd.wire.logs import LogLine, LogLines, LogQuery

app = new_app()

EXAMPLES = """
  skulkctl logs                            the node that skulkctl connects to
  skulkctl logs kite2 --lines 50
  skulkctl logs kite2 --before 2h          older lines, also from before a restart
  skulkctl logs kite2 --runner 91aa --follow
"""

_EVERY_S = 1.0


@verb(app, "logs", Reach, Output, examples=EXAMPLES)
def logs(
    call: Invocation,
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="NODE", autocompletion=values.nodes, help="Name, id, or a prefix of either."
        ),
    ] = None,
    runner: Annotated[
        str | None,
        typer.Option(
            "--runner", metavar="ID", help="Print the output of this runner's process instead."
        ),
    ] = None,
    lines: Annotated[
        int,
        typer.Option("--lines", "-n", metavar="N", min=1, max=5000, help="Print the last N lines."),
    ] = 200,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new lines.")
    ] = False,
    before: Annotated[
        datetime | None,
        typer.Option(
            "--before",
            metavar="TIME",
            parser=moment,
            help="Only lines before this time: an age (2h) or a time (2026-05-04T14:00Z).",
        ),
    ] = None,
) -> int:
    """Print the last log lines of a node's daemon, or of one of its runners.

    Prints at most 5000 lines at a time; --before prints older ones. Secrets are redacted.
    With -o json or yaml, print one document; with -o jsonl, one object per line, also with
    --follow. Ctrl-C ends --follow.
    """
    from skulkctl.output.formats import refuse_follow, show_document

    refuse_follow(call, follow)
    if before is not None and (follow or runner):
        raise UsageMistake("--before cannot be used with --follow or --runner")
    node_id, query = _query(call, node, runner, lines, before)
    if call.format in ("json", "yaml"):
        found = call.daemon.logs(node_id, query).lines
        show_document(call, "LogLineList", (_item(line) for line in found))
        return ExitCode.DONE
    for batch in _batches(call.daemon, node_id, query, follow):
        if batch.lost:
            call.messages.warning(f"{batch.lost} lines were lost in between")
        if not write_now("".join(_text(call, line) for line in batch.lines)):
            break
    return ExitCode.DONE


def _query(
    call: Invocation, node: str | None, runner: str | None, lines: int, before: datetime | None
) -> tuple[str | None, LogQuery]:
    """The node to ask, and what to ask it."""
    from skulkd.wire.ids import RunnerId
    from skulkd.wire.logs import LogQuery

    node_id, runner_id = _find(call, node, runner)
    found = None if runner_id is None else RunnerId(runner_id)
    return node_id, LogQuery(lines=lines, runner_id=found, before=before)


def _find(call: Invocation, node: str | None, runner: str | None) -> tuple[str | None, str | None]:
    """The whole ids of the node and the runner that were typed."""
    from skulkctl.names import Candidate, find_one
    from skulkctl.nodes.rows import find_node, node_items

    if node is None and runner is None:
        return None, None
    state = call.daemon.state()
    node_id = None if node is None else find_node(node_items(state), node)["id"]
    if runner is None:
        return node_id, None
    candidates = [
        Candidate((place, one), (one,), (), one)
        for instance in state.instances.values()
        for place, one in instance.shard_assignments.node_to_runner.items()
        if node_id in (None, place)
    ]
    # A runner that has ended may still have a log; its whole id is needed then.
    return find_one("runner", candidates, runner) or (node_id, runner)


def _batches(
    daemon: Daemon, node_id: str | None, query: LogQuery, follow: bool
) -> Iterator[LogLines]:
    """The last lines; with `follow` also what was written since, asked for every second."""
    from skulkd.wire.logs import MOST_LINES

    batch = daemon.logs(node_id, query)
    yield batch
    while follow:
        time.sleep(_EVERY_S)
        since = {"lines": MOST_LINES, "after": batch.cursor}
        batch = daemon.logs(node_id, query.model_copy(update=since))
        yield batch


def _item(line: LogLine) -> dict[str, object]:
    """As the daemon wrote it."""
    return line.model_dump(exclude_unset=True)


def _text(call: Invocation, line: LogLine) -> str:
    from skulkctl.events.rows import log_text
    from skulkctl.output.formats import to_json

    if call.format == "jsonl":
        return to_json(_item(line), indent=None)
    return log_text(line, call.style.room)

"""Taking nodes out of rotation and back; waiting until they are empty."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from skulkctl.errors import CliError, DeadlinePassed, PartialAnswer, Unreachable, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.nodes.rows import NodeItem, find_node, node_items
from skulkctl.progress import ProgressLine
from skulkctl.tables import Column, Resource
from skulkctl.units import age_text, parse_duration
from skulkctl.views.load import in_short, left_over
from skulkctl.views.read import Document, flag, mapping, sequence, text

if TYPE_CHECKING:
    from skulkctl.invocation import Invocation

DEADLINE_S = 600.0
PATH = "/v1/drain"
_POLL_S = 0.25

DRAINED = Resource(
    kind="DrainList",
    name_path="name",
    columns=(
        Column("node", "name", "Name of the node."),
        Column("state", "state", "draining, in rotation, or NO ANSWER.", status=True),
        Column("changed", "changed", "Whether this command changed that."),
        Column("id", "id", "Id of this session.", wide=True),
    ),
)


def read_deadline(typed: str | None) -> float:
    try:
        return DEADLINE_S if typed is None else parse_duration(typed)
    except ValueError as error:
        raise UsageMistake(f"--deadline: {error}") from None


def choose_nodes(call: Invocation, node: str | None, all_nodes: bool) -> list[NodeItem]:
    """The nodes that were meant. Raises UsageMistake, NotFound."""
    if (node is None) != all_nodes:
        raise UsageMistake("name one node, or say --all", hints=["skulkctl nodes"])
    state = call.daemon.state()
    items = node_items(state, call.daemon.members(state.node_ids))
    return items if node is None else [find_node(items, node, call.talk.note)]


def change(call: Invocation, nodes: Sequence[Document], *, draining: bool) -> list[Document]:
    """Tell them. Raises PartialAnswer when some could not be told."""
    ids = [str(node["id"]) for node in nodes]
    answer = call.client.change("PUT", PATH, {"draining": draining, "nodeIds": ids})
    told = [mapping(row) for row in sequence(answer, "nodes")]
    items = [_item(row) for row in told]
    call.show_rows(DRAINED, items)
    failed = [row for row in told if flag(row, "ok") is False]
    if failed:
        word = "drain" if draining else "undrain"
        why = [f"{text(row, 'name')}: {text(row, 'error')}" for row in failed]
        raise PartialAnswer(f"{len(failed)} of {len(told)} nodes could not be told to {word}", *why)
    return told


def _item(row: Document) -> dict[str, object]:
    state = "draining" if flag(row, "draining") else "in rotation"
    return {
        "name": text(row, "name"),
        "id": text(row, "nodeId"),
        "state": state if flag(row, "ok") else "NO ANSWER",
        "changed": flag(row, "changed"),
    }


def wait_empty(call: Invocation, nodes: Sequence[Document], limit_s: float) -> None:
    """Return when nothing is left to finish there. Raises DeadlinePassed with what is left."""
    ids = frozenset(str(node["id"]) for node in nodes)
    names = ", ".join(str(node["name"]) for node in nodes)
    end = time.monotonic() + limit_s
    left: list[str] = ["not looked yet"]
    with ProgressLine(call.quiet) as line:
        try:
            while (left_s := end - time.monotonic()) > 0:
                left = _look(call, ids, left_s)
                if not left:
                    return
                line.show(str(len(left)), f"{names}: waits for {in_short(left)}")
                time.sleep(min(_POLL_S, left_s))
        except KeyboardInterrupt:
            line.clear()
            call.talk.warning(f"interrupted; {names} goes on draining")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
    raise DeadlinePassed(
        f"{names} is not empty after {age_text(limit_s)}",
        *left,
        hints=[
            "it goes on draining; look again:  skulkctl load --all-nodes",
            "end a request:  skulkctl cancel TASK",
        ],
    )


def _look(call: Invocation, ids: frozenset[str], timeout_s: float) -> list[str]:
    from skulkctl.client import Client

    try:
        # A new client each time: another endpoint of the context may answer meanwhile.
        load = Client(call.target, max(timeout_s, 1.0), call.talk.detail).get("/v1/load")
    except Unreachable:
        raise
    except CliError as error:
        return [f"no answer: {'; '.join(error.why) or error.what}"]
    return left_over(load, ids)


def say_done(call: Invocation, nodes: Sequence[Document]) -> None:
    names = ", ".join(str(node["name"]) for node in nodes)
    call.talk.note(f"{names}: nothing left to finish")

"""Taking nodes out of rotation and back; waiting until they are empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skulkctl.errors import CliError, DeadlinePassed, PartialAnswer, Unreachable, UsageMistake
from skulkctl.nodes.load import in_short, left_over
from skulkctl.nodes.rows import NO_ANSWER, NodeItem, find_node, node_items
from skulkctl.output.progress import Progress
from skulkctl.output.tables import Column, Resource
from skulkctl.output.units import age_text
from skulkctl.polling import poll_until

if TYPE_CHECKING:
    from skulkctl.cli import Invocation
    from skulkd.wire.load import DrainedNode

DRAINED = Resource(
    kind="DrainList",
    name_path="name",
    columns=(
        Column("node", "name", "Name of the node."),
        Column("state", "state", "draining, in rotation, or NO ANSWER.", status=True),
        Column("changed", "changed", "Whether this command changed that."),
        Column("id", "id", "Id of the daemon's current session.", wide=True),
    ),
)


def choose_nodes(call: Invocation, node: str | None, all_nodes: bool) -> list[NodeItem]:
    """The nodes that were meant. Raises UsageMistake, NotFound."""
    if (node is None) != all_nodes:
        raise UsageMistake("give a NODE, or --all", hints=["skulkctl nodes"])
    state = call.daemon.state()
    items = node_items(state, call.daemon.members(state.node_ids))
    return items if node is None else [find_node(items, node, call.messages.note)]


def change(call: Invocation, nodes: Sequence[NodeItem], *, draining: bool) -> None:
    """Send the change to the nodes. Raises PartialAnswer when it failed on some."""
    changed = call.daemon.drain([node["id"] for node in nodes], draining=draining).nodes
    call.show_rows(DRAINED, [_item(node) for node in changed])
    failed = [node for node in changed if not node.ok]
    if failed:
        word = "drain" if draining else "undrain"
        why = [f"{node.name}: {node.error}" for node in failed]
        raise PartialAnswer(f"could not {word} {len(failed)} of {len(changed)} nodes", *why)


def _item(node: DrainedNode) -> dict[str, object]:
    state = "draining" if node.draining else "in rotation"
    return {
        "name": node.name,
        "id": node.node_id,
        "state": state if node.ok else NO_ANSWER,
        "changed": node.changed,
    }


def wait_empty(call: Invocation, nodes: Sequence[NodeItem], limit_s: float) -> None:
    """Wait until all active work has finished. Raises DeadlinePassed with the remaining work."""
    ids = frozenset(node["id"] for node in nodes)
    names = ", ".join(node["name"] for node in nodes)
    left: list[str] = ["not checked yet"]
    call.if_interrupted = f"{names} continues draining"
    with Progress(call.quiet) as line:

        def is_empty(found: list[str]) -> bool | None:
            left[:] = found
            if left:
                line.show(str(len(left)), f"{names}: waiting for {in_short(left)}")
            return None if left else True

        found = poll_until(lambda left_s: _left(call, ids, left_s), is_empty, limit_s)
    if found is None:
        raise DeadlinePassed(
            f"{names} is not empty after {age_text(limit_s)}",
            *left,
            hints=[
                "draining continues; check again:  skulkctl load --all-nodes",
                "cancel a request:  skulkctl cancel TASK",
            ],
        )


def _left(call: Invocation, ids: frozenset[str], left_s: float) -> list[str]:
    try:
        return left_over(call.daemon.within(max(left_s, 1.0)).load(), ids)
    except Unreachable:
        raise
    except CliError as error:
        return [f"no answer: {'; '.join(error.why) or error.what}"]


def say_done(call: Invocation, nodes: Sequence[NodeItem]) -> None:
    names = ", ".join(node["name"] for node in nodes)
    call.messages.note(f"{names}: nothing left to finish")

"""What a purge did, or would do: from the daemon's answer to rows. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypedDict

from skulkctl.nodes.rows import NO_ANSWER
from skulkctl.output.layout import without_owner
from skulkctl.output.tables import Column, Resource, size
from skulkctl.output.units import size_text

if TYPE_CHECKING:
    from skulkd.wire.storage import NodePurge, PurgedModel, PurgeResult

PURGE = Resource(
    kind="PurgeList",
    name_path="modelId",
    empty_hint="nothing is staged there:  skulkctl storage --all-nodes",
    columns=(
        Column("node", "node", "Name of the node."),
        Column("model", "modelId", "Id of the model.", short=without_owner),
        Column("size", "sizeBytes", "Bytes on disk.", size, right=True),
        Column("result", "result", "purged, would purge, in use, or NO ANSWER.", status=True),
        Column("why", "reasons", "What uses the copy, or the error."),
        Column("id", "nodeId", "Id of the node's session.", wide=True),
    ),
)

AFTER = Resource(
    kind="PurgedNodeList",
    name_path="node",
    columns=(
        Column("node", "node", "Name of the node."),
        Column("before", "stagedBytesBefore", "Staged bytes before the purge.", size, right=True),
        Column("after", "stagedBytesAfter", "Staged bytes after the purge.", size, right=True),
        Column("freed", "freedBytes", "Freed disk space.", size, right=True),
        Column("free", "diskFreeBytes", "Free disk space after the purge.", size, right=True),
    ),
)


class PurgeItem(TypedDict):
    """One copy that was looked at, or a node that did not answer."""

    node: str
    nodeId: str
    modelId: str | None
    sizeBytes: int | None
    result: str
    reasons: list[str]


def purge_items(answer: PurgeResult) -> list[PurgeItem]:
    """One item for each copy that was looked at, and one for each silent node."""
    done = "would purge" if answer.dry_run else "purged"
    return [item for node in answer.nodes for item in _items(node, done)]


def _items(node: NodePurge, done: str) -> Iterator[PurgeItem]:
    if not node.ok:
        yield _item(node, NO_ANSWER, [node.error or "no reason given"])
        return
    for result, models in ((done, node.purged), ("in use", node.skipped)):
        for model in models:
            yield _item(node, result, list(model.reasons), model)


def _item(
    node: NodePurge, result: str, reasons: list[str], model: PurgedModel | None = None
) -> PurgeItem:
    return {
        "node": node.name or node.node_id,
        "nodeId": node.node_id,
        "modelId": model.model_id if model else None,
        "sizeBytes": model.size_bytes if model else None,
        "result": result,
        "reasons": reasons,
    }


def node_items(answer: PurgeResult) -> list[dict[str, object]]:
    """Before and after, for each node that answered."""
    return [
        {
            "node": node.name or node.node_id,
            "stagedBytesBefore": node.staged_bytes_before,
            "stagedBytesAfter": node.staged_bytes_after,
            "freedBytes": node.freed_bytes,
            "diskFreeBytes": node.disk_free_bytes,
        }
        for node in answer.nodes
        if node.ok
    ]


def gains(answer: PurgeResult) -> tuple[str, ...]:
    """`kite1: 3 models and 12.0 GiB`, for each node where something would be deleted."""
    return tuple(
        f"{node.name or node.node_id}: {_count(len(node.purged))} and {size_text(node.freed_bytes)}"
        for node in answer.nodes
        if node.purged
    )


def _count(models: int) -> str:
    return f"{models} model{'' if models == 1 else 's'}"


def users_of(items: Sequence[PurgeItem]) -> tuple[str, ...]:
    """Why copies must stay, one line each."""
    return tuple(
        f"{item['modelId']} on {item['node']}: {'; '.join(item['reasons'])}"
        for item in items
        if item["result"] == "in use"
    )

"""What a purge did, or would do: from the daemon's answer to rows. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skulkctl.layout import without_owner
from skulkctl.tables import Column, Resource, size
from skulkctl.units import size_text
from skulkctl.views.nodes import NO_ANSWER
from skulkctl.views.read import Document, flag, integer, sequence, text

PURGE = Resource(
    kind="PurgeList",
    name_path="modelId",
    empty_hint="nothing is staged there:  skulkctl storage --all-nodes",
    columns=(
        Column("node", "node", "Name of the node."),
        Column("model", "modelId", "Id of the model.", short=without_owner),
        Column("size", "sizeBytes", "Bytes on disk.", size, right=True),
        Column("result", "result", "purged, would purge, in use, or NO ANSWER.", status=True),
        Column("why", "reasons", "What uses it, or what went wrong."),
        Column("id", "nodeId", "Id of the node's session.", wide=True),
    ),
)

AFTER = Resource(
    kind="PurgedNodeList",
    name_path="node",
    columns=(
        Column("node", "node", "Name of the node."),
        Column("before", "stagedBytesBefore", "Staged before.", size, right=True),
        Column("after", "stagedBytesAfter", "Staged now.", size, right=True),
        Column("freed", "freedBytes", "What came back.", size, right=True),
        Column("free", "diskFreeBytes", "Free disk now.", size, right=True),
    ),
)


def purge_rows(answer: object) -> list[dict[str, object]]:
    """One row for each copy that was looked at, and one for each silent node."""
    return [row for node in sequence(answer, "nodes") for row in _rows(node, answer)]


def _rows(node: object, answer: object) -> Iterator[dict[str, object]]:
    name = text(node, "name") or text(node, "nodeId")
    base = {"node": name, "nodeId": text(node, "nodeId")}
    if flag(node, "ok") is not True:
        why = [text(node, "error") or "no reason given"]
        yield {**base, "modelId": None, "sizeBytes": None, "result": NO_ANSWER, "reasons": why}
        return
    done = "would purge" if flag(answer, "dryRun") else "purged"
    for result, key in ((done, "purged"), ("in use", "skipped")):
        for model in sequence(node, key):
            yield {
                **base,
                "modelId": text(model, "modelId"),
                "sizeBytes": integer(model, "sizeBytes"),
                "result": result,
                "reasons": [str(reason) for reason in sequence(model, "reasons")],
            }


def node_rows(answer: object) -> list[dict[str, object]]:
    """Before and after, for each node that answered."""
    keys = ("stagedBytesBefore", "stagedBytesAfter", "freedBytes", "diskFreeBytes")
    return [
        {"node": text(node, "name") or text(node, "nodeId"), **{k: integer(node, k) for k in keys}}
        for node in sequence(answer, "nodes")
        if flag(node, "ok") is True
    ]


def gains(answer: object) -> tuple[str, ...]:
    """`kite1: 3 models and 12.0 GiB`, for each node where something would go."""
    found = []
    for node in sequence(answer, "nodes"):
        models = len(sequence(node, "purged"))
        if models:
            name = text(node, "name") or text(node, "nodeId")
            freed = size_text(integer(node, "freedBytes") or 0)
            count = f"{models} model{'' if models == 1 else 's'}"
            found.append(f"{name}: {count} and {freed}")
    return tuple(found)


def silent_nodes(answer: object) -> list[Document]:
    return [row for row in purge_rows(answer) if row["result"] == NO_ANSWER]


def users_of(rows: Sequence[Document]) -> tuple[str, ...]:
    """Why copies must stay, one line each."""
    return tuple(
        f"{row['modelId']} on {row['node']}: {'; '.join(map(str, sequence(row, 'reasons')))}"
        for row in rows
        if row["result"] == "in use"
    )

"""Models as rows: the catalogue, who has the files, what is placed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

from skulkctl.layout import without_owner
from skulkctl.names import Candidate, Note, find_one
from skulkctl.tables import EMPTY, Column, Resource, plain, size
from skulkctl.views.instances import instance_items
from skulkctl.views.nodes import node_ids, node_name
from skulkctl.views.read import Document, either, flag, integer, sequence, text
from skulkctl.views.staging import nodes_with

_MIB = 1024**2
_NEAR = 3
_LIKE = 0.7


def _here(item: object) -> str:
    nodes = sequence(item, "nodes")
    return plain(nodes) if nodes else either(flag(item, "downloaded"), "yes", EMPTY) or EMPTY


MODELS = Resource(
    kind="ModelList",
    name_path="id",
    empty_hint="no such model:  skulkctl models, or bring one:  skulkctl model import PATH",
    columns=(
        Column("model", "id", "Id of the model, as place and chat take it.", short=without_owner),
        Column("size", "sizeBytes", "Size of its weights.", text=size, right=True),
        Column("context", "contextLength", "Longest context in tokens.", right=True, spare=3),
        Column("quant", "quantization", "How its weights are packed.", spare=5),
        Column("tags", "tags", "optiq, thinking, vision, tensor, embedding.", spare=4),
        Column("here", "files", "Nodes that have its files; yes when only that is known.", _here),
        Column("placed", "placed", "Status of its instances.", status=True),
        Column("family", "family", "Family of the model.", wide=True),
        Column("base", "baseModel", "Model that it was made from.", wide=True),
        Column("tasks", "tasks", "What it can do.", wide=True),
        Column("custom", "custom", "Whether the card is the operator's own.", wide=True),
        Column("about", "description", "Description of the card.", wide=True),
    ),
)


def catalogue_ids(answer: object) -> list[str]:
    """The ids in an answer of `GET /models`."""
    found = (text(entry, "id") for entry in sequence(answer, "data"))
    return [model_id for model_id in found if model_id]


def model_items(catalogue: object, downloaded: object, state: object) -> list[dict[str, object]]:
    """One item per card, by id."""
    present = set(catalogue_ids(downloaded))
    instances = instance_items(state)
    items = [
        _item(entry, present, instances, state)
        for entry in sequence(catalogue, "data")
        if text(entry, "id")
    ]
    return sorted(items, key=lambda item: str(item["id"]).casefold())


def _item(
    entry: object, present: set[str], instances: Sequence[Document], state: object
) -> dict[str, object]:
    model_id = text(entry, "id") or ""
    nodes = nodes_with(state, model_id)
    downloaded = bool(nodes) or model_id in present
    known = node_ids(state)
    if downloaded and not nodes and len(known) == 1:
        nodes = [node_name(state, known[0])]
    megabytes = integer(entry, "storage_size_megabytes")
    return {
        "id": model_id,
        "sizeBytes": megabytes * _MIB if megabytes else None,
        # The API says 0 for what it does not know.
        "contextLength": integer(entry, "context_length") or None,
        "quantization": text(entry, "quantization"),
        "tags": list(sequence(entry, "tags")),
        "files": {"downloaded": downloaded, "nodes": nodes},
        "placed": _placed(model_id, instances),
        "family": text(entry, "family"),
        "baseModel": text(entry, "base_model"),
        "tasks": list(sequence(entry, "tasks")),
        "custom": flag(entry, "is_custom"),
        "description": text(entry, "description"),
    }


def _placed(model_id: str, instances: Sequence[Document]) -> str | None:
    """The best status among its instances."""
    found = {item["status"] for item in instances if item["modelId"] == model_id}
    return next((word for word in ("ready", "starting", "failed") if word in found), None)


def is_like(item: Document, wanted: str) -> bool:
    """Whether the words of a filter occur anywhere in what is known of the model."""
    parts = ("id", "family", "baseModel", "quantization", "tags", "tasks", "description")
    everything = " ".join(plain(item[part]) for part in parts).casefold()
    return all(word in everything for word in wanted.casefold().split())


def custom_ids(answer: object) -> list[str]:
    """The ids of cards that were added, in an answer of `GET /models`."""
    entries = sequence(answer, "data")
    return catalogue_ids({"data": [entry for entry in entries if flag(entry, "is_custom")]})


def find_model(ids: Iterable[str], typed: str, note: Note | None = None) -> str | None:
    """The one id that was meant: in full, its part after the slash, or a prefix of either.

    None when nothing matches; `note`: see `names.find_one`. Raises UsageMistake with the
    candidates when several do.
    """
    names = list(dict.fromkeys(ids))
    candidates = [Candidate(one, (one,), (_name(one),), one) for one in names]
    return find_one("model", candidates, typed, note)


def nearest(ids: Iterable[str], typed: str) -> list[str]:
    """Up to three ids whose name, or the beginning of it, looks like what was typed."""
    wanted = _name(typed.casefold())

    def likeness(model_id: str) -> float:
        name = _name(model_id.casefold())
        tries = (name, name[: len(wanted)])
        return max(SequenceMatcher(None, wanted, part).ratio() for part in tries)

    scored = [(likeness(model_id), model_id) for model_id in dict.fromkeys(ids)]
    best = sorted(entry for entry in scored if entry[0] >= _LIKE)
    return [model_id for _, model_id in reversed(best)][:_NEAR]


def _name(model_id: str) -> str:
    return model_id.rpartition("/")[2]

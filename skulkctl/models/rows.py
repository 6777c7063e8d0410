"""Models as rows: the catalogue, who has the files, what is placed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, TypedDict

from skulkctl.daemon.state import known
from skulkctl.names import Candidate, Note, find_one
from skulkctl.output.layout import without_owner
from skulkctl.output.tables import EMPTY, Column, Resource, plain, size
from skulkctl.placement.downloads import nodes_with
from skulkctl.placement.instances import InstanceItem, instance_items

if TYPE_CHECKING:
    from skulkctl.daemon.state import ClusterState
    from skulkd.wire.catalogue import ModelList, ModelListModel

_MIB = 1024**2
_NEAR = 3
_LIKE = 0.7


def _here(files: object) -> str:
    if not isinstance(files, dict):
        return EMPTY
    return plain(files["nodes"]) if files["nodes"] else "yes" if files["downloaded"] else EMPTY


MODELS = Resource(
    kind="ModelList",
    name_path="id",
    empty_hint="no such model:  skulkctl models, or import one:  skulkctl model import PATH",
    columns=(
        Column("model", "id", "Id of the model, for place and chat.", short=without_owner),
        Column("size", "sizeBytes", "Size of its weights.", text=size, right=True),
        Column(
            "context", "contextLength", "Maximum context length in tokens.", right=True, spare=3
        ),
        Column("quant", "quantization", "Quantization of its weights.", spare=5),
        Column("tags", "tags", "optiq, thinking, vision, tensor, embedding.", spare=4),
        Column(
            "here", "files", "Nodes that have its files; yes if the nodes are not known.", _here
        ),
        Column("placed", "placed", "Status of its instances.", status=True),
        Column("family", "family", "Family of the model.", wide=True),
        Column("base", "baseModel", "Base model.", wide=True),
        Column("tasks", "tasks", "Supported tasks.", wide=True),
        Column("custom", "custom", "Whether the card was added by the user.", wide=True),
        Column("about", "description", "Description from the card.", wide=True),
    ),
)


class FilesItem(TypedDict):
    downloaded: bool
    nodes: list[str]


class ModelItem(TypedDict):
    """One model as `skulkctl models -o json` prints it."""

    id: str
    sizeBytes: int | None
    contextLength: int | None
    quantization: str | None
    tags: list[str]
    files: FilesItem
    placed: str | None
    family: str | None
    baseModel: str | None
    tasks: list[str]
    custom: bool
    description: str | None


def model_items(
    catalogue: ModelList, downloaded: ModelList, state: ClusterState
) -> list[ModelItem]:
    """One item per card, by id."""
    present = {model.id for model in downloaded.data}
    instances = instance_items(state)
    items = [_item(model, present, instances, state) for model in catalogue.data]
    return sorted(items, key=lambda item: item["id"].casefold())


def _item(
    model: ModelListModel, present: set[str], instances: Sequence[InstanceItem], state: ClusterState
) -> ModelItem:
    nodes = nodes_with(state, model.id)
    downloaded = bool(nodes) or model.id in present
    if downloaded and not nodes and len(state.node_ids) == 1:
        nodes = [state.node_name(state.node_ids[0])]
    return {
        "id": model.id,
        # The API says 0, or an empty text, for what it does not know.
        "sizeBytes": model.storage_size_megabytes * _MIB or None,
        "contextLength": model.context_length or None,
        "quantization": known(model.quantization),
        "tags": list(model.tags),
        "files": {"downloaded": downloaded, "nodes": nodes},
        "placed": _placed(model.id, instances),
        "family": known(model.family),
        "baseModel": known(model.base_model),
        "tasks": list(model.tasks),
        "custom": model.is_custom,
        "description": known(model.description),
    }


def _placed(model_id: str, instances: Sequence[InstanceItem]) -> str | None:
    """The best status among its instances."""
    found = {item["status"] for item in instances if item["modelId"] == model_id}
    return next((word for word in ("ready", "starting", "failed") if word in found), None)


def is_like(item: ModelItem, wanted: str) -> bool:
    """Whether the words of a filter occur anywhere in what is known of the model."""
    parts = [item["id"], item["family"], item["baseModel"], item["quantization"]]
    parts += [*item["tags"], *item["tasks"], item["description"]]
    everything = " ".join(plain(part) for part in parts).casefold()
    return all(word in everything for word in wanted.casefold().split())


def find_model(ids: Iterable[str], typed: str, note: Note | None = None) -> str | None:
    """The one id that was meant: in full, its part after the slash, or a prefix of either.

    None when nothing matches; `note`: see `names.find_one`. Raises UsageMistake with the
    candidates when several do.
    """
    names = list(dict.fromkeys(ids))
    candidates = [Candidate(name, (name,), (_name(name),), name) for name in names]
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

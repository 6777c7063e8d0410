"""Which placed model is meant: by its name, an instance's id, or as the only one there is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skulkctl.errors import CliError, NotFound, Refused, UsageMistake
from skulkctl.names import Candidate, find_one, model_aliases
from skulkctl.placement.instances import (
    InstanceItem,
    instance_items,
    models_of,
    short_instance,
)

if TYPE_CHECKING:
    from skulkctl.daemon.state import ClusterState
    from skulkd.wire.instances import Instance

_BEST_FIRST = ("ready", "starting", "failed")


def choose_placed(items: Sequence[InstanceItem], typed: str | None) -> InstanceItem:
    """The best instance of what was typed, or of the only model that is placed.

    Raises NotFound, UsageMistake when several models match, or CliError when it has failed.
    """
    best = best_of(find_placed(items, typed))
    model_id = best["modelId"]
    if best["status"] == "failed":
        short = short_instance(best["id"])
        raise CliError(
            f"{model_id} ({short}) cannot respond",
            best["detail"] or "its runner failed",
            hints=[
                "skulkctl diagnose",
                f"start again:  skulkctl delete {short} && skulkctl place {model_id} --wait",
            ],
        )
    return best


class NoChatModel(Refused):
    """The model makes embeddings."""


def choose_chat_model(state: ClusterState, typed: str | None) -> InstanceItem:
    """As `choose_placed`, of models that generate text. Raises NoChatModel, too."""
    items = instance_items(state)
    embedding = {key for key, one in state.instances.items() if _embeds(one)}
    # Without a name, an embedding model beside the only chat model is not meant.
    chat = [item for item in items if item["id"] not in embedding]
    best = choose_placed(chat if typed is None and chat else items, typed)
    if best["id"] in embedding:
        raise NoChatModel(
            f"{best['modelId']} is an embedding model and generates no text",
            hints=[
                "turn texts into vectors:  POST /v1/embeddings, or /api/embed for Ollama clients",
                "models that generate text have no tag embedding:  skulkctl models",
            ],
        )
    return best


def _embeds(instance: Instance) -> bool:
    cards = (shard.model_card for shard in instance.shard_assignments.runner_to_shard.values())
    return any("TextEmbedding" in card.tasks for card in cards)


def find_placed(items: Sequence[InstanceItem], typed: str | None) -> list[InstanceItem]:
    """The instances of the model that was typed, or the one instance whose id was.

    Without `typed` those of the only model that is placed. Raises NotFound, UsageMistake.
    """
    models = models_of(items)
    if typed is None:
        typed = _only_one(models)
    of_model = {model: [item for item in items if item["modelId"] == model] for model in models}
    candidates = [
        Candidate(mine, (), model_aliases(model), model) for model, mine in of_model.items()
    ]
    candidates += [
        Candidate([item], (item["id"],), (), f"{item['id']}  {item['modelId']}") for item in items
    ]
    found = find_one("placed model", candidates, typed)
    if found is None:
        raise _not_placed(typed, models)
    return found


def best_of(items: Sequence[InstanceItem]) -> InstanceItem:
    """The one that serves, or will serve first."""
    return min(items, key=lambda item: _BEST_FIRST.index(item["status"]))


def _only_one(models: Sequence[str]) -> str:
    if len(models) == 1:
        return models[0]
    if not models:
        raise NotFound(
            "nothing is placed", hints=["skulkctl models", "skulkctl place MODEL --wait"]
        )
    raise UsageMistake(f"{len(models)} models are placed; specify one", *models)


def _not_placed(typed: str, models: Sequence[str]) -> NotFound:
    known = f"placed: {', '.join(models)}" if models else "nothing is placed"
    return NotFound(f"{typed} is not placed", known, hints=[f"skulkctl place {typed} --wait"])

"""Which placed model is meant: by its id, a part of it, or the only one there is. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from skulkctl.errors import CliError, NotFound, UsageMistake
from skulkctl.views.instances import models_of, short_instance
from skulkctl.views.models import find_model
from skulkctl.views.read import Document, text

_BEST_FIRST = ("ready", "starting", "failed")


def choose_placed(items: Sequence[Document], typed: str | None) -> Document:
    """The best instance of the model that was typed, or of the only one that is placed.

    Raises NotFound, UsageMistake when several fit, or CliError when it has failed.
    """
    models = models_of(items)
    if typed is None:
        model_id = _only_one(models)
    else:
        found = find_model(models, typed)
        if found is None:
            raise _not_placed(typed, models)
        model_id = found
    mine = [item for item in items if item["modelId"] == model_id]
    best = min(mine, key=lambda item: _BEST_FIRST.index(str(item["status"])))
    if best["status"] == "failed":
        short = short_instance(best["id"])
        raise CliError(
            f"{model_id} ({short}) cannot answer",
            text(best, "detail") or "its runner has failed",
            hints=[
                "skulkctl diagnose",
                f"start again:  skulkctl delete {short} && skulkctl place {model_id} --wait",
            ],
        )
    return best


def _only_one(models: Sequence[str]) -> str:
    if len(models) == 1:
        return models[0]
    if not models:
        raise NotFound(
            "nothing is placed", hints=["skulkctl models", "skulkctl place MODEL --wait"]
        )
    raise UsageMistake(f"{len(models)} models are placed; name one of them", *models)


def _not_placed(typed: str, models: Sequence[str]) -> NotFound:
    known = f"placed: {', '.join(models)}" if models else "nothing is placed"
    return NotFound(f"{typed} is not placed", known, hints=[f"skulkctl place {typed} --wait"])

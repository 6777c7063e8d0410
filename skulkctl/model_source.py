"""Models that come from this machine: made, downloaded or imported here, then kept or sent."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from skulkctl.views.read import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skulkctl.invocation import Invocation
    from skulkctl.upload import Destination


@dataclass(frozen=True)
class Source:
    """How a model is made here, by `python -m skulkd.store`. Its id may be known only then."""

    arguments: Sequence[str]
    what: str
    done: str
    model_id: str | None = None
    replaces: bool = False


def bring_here(call: Invocation, source: Source, models: Path | None = None) -> tuple[str, Path]:
    """Id and directory of the model, in this machine's models directory or in `models`."""
    from skulkctl.store_process import run_store

    event = run_store(source.arguments, source.what, call.talk, models)
    return text(event, "model_id") or "", Path(text(event, "path") or "")


def send(call: Invocation, source: Source, goals: Sequence[Destination]) -> str:
    """Bring the model to all of these; its id. What is complete there is left alone."""
    from skulkctl.upload import describe, has_model, upload

    known = source.model_id
    if known and all(has_model(call, goal, known) for goal in goals if not goal.is_this_machine):
        missing = [goal for goal in goals if goal.is_this_machine]
        return bring_here(call, source)[0] if missing else known
    model_id, directory, kept = _directory(call, source, goals)
    files = describe(call, directory)
    for goal in goals:
        if not goal.is_this_machine:
            upload(call, goal, model_id, files, replaces=source.replaces)
    if not kept:
        shutil.rmtree(directory, ignore_errors=True)
    return model_id


def _directory(
    call: Invocation, source: Source, goals: Sequence[Destination]
) -> tuple[str, Path, bool]:
    """Id, files, and whether they stay here: they do where this machine's daemon uses them.

    Otherwise they are in the cache until they were sent, so that a repeated command need not
    download them again.
    """
    models = call.paths.models
    if source.model_id:
        own = models / source.model_id.replace("/", "--")
        if (own / "config.json").is_file():
            return source.model_id, own, True
    if any(goal.is_this_machine for goal in goals):
        return (*bring_here(call, source), True)
    outgoing = call.paths.cache / "outgoing"
    if source.model_id is None:
        # An import is made anew each time: PATH may have changed.
        outgoing /= "imported"
        shutil.rmtree(outgoing, ignore_errors=True)
    return (*bring_here(call, source, outgoing), False)

"""The parts of the node that generation needs, as one service; nothing here does any work."""

from __future__ import annotations

from dataclasses import dataclass, field

from skulkd.api.commands import Commands
from skulkd.api.dispatch import Dispatcher
from skulkd.api.journal import Journal
from skulkd.api.model_shelf import ModelShelf
from skulkd.api.worker_seam import Worker


@dataclass(frozen=True, slots=True)
class Pace:
    """How long clients wait, and are waited for."""

    keep_alive_s: float = 10.0
    write_s: float = 30.0
    """For a client to read what is being written."""
    early_s: float = 1.0
    """For a refusal by the runner to become an HTTP status instead of the end of a stream."""
    placement_s: float = 8.0
    """For what the planner has to know and does not yet."""


@dataclass(slots=True)
class Figures:
    """Counted since the start."""

    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Inference:
    worker: Worker
    journal: Journal
    models: ModelShelf
    dispatcher: Dispatcher
    commands: Commands = field(default_factory=Commands)
    pace: Pace = field(default_factory=Pace)
    figures: Figures = field(default_factory=Figures)

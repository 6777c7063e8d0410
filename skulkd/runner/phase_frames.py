"""Phases on the pipe. A request leaves two dozen of them, most of what a runner says.

So they are short arrays, without what the supervisor knows anyway, and become the models that
diagnostics show only when somebody looks.
"""

from typing import NamedTuple

from pydantic import TypeAdapter

from skulkd.wire.base import Attributes, Memory
from skulkd.wire.diagnostics import (
    MlxMemorySnapshot,
    RunnerDiagnosticContext,
    RunnerFlightRecorderEntry,
    RunnerPhase,
)
from skulkd.wire.ids import CommandId, TaskId

_SOURCE = "mlx.core"


class MemoryReading(NamedTuple):
    """MLX memory in bytes. `wired_limit` is known only where Metal is."""

    at: str
    active: int
    cache: int
    peak: int
    wired_limit: int | None = None

    def shown(self) -> MlxMemorySnapshot:
        return MlxMemorySnapshot(
            generated_at=self.at,
            active=Memory.of(self.active),
            cache=Memory.of(self.cache),
            peak=Memory.of(self.peak),
            wired_limit=None if self.wired_limit is None else Memory.of(self.wired_limit),
            source=_SOURCE,
        )


class Entry(NamedTuple):
    """One line of the flight recorder."""

    at: str
    phase: RunnerPhase
    event: str
    attrs: Attributes
    detail: str | None = None
    task_id: TaskId | None = None
    command_id: CommandId | None = None
    memory: MemoryReading | None = None

    def shown(self, context: RunnerDiagnosticContext) -> RunnerFlightRecorderEntry:
        """As diagnostics show it, for the process that `context` names."""
        return RunnerFlightRecorderEntry(
            at=self.at,
            phase=self.phase,
            event=self.event,
            detail=self.detail,
            attrs=self.attrs,
            context=context,
            task_id=self.task_id,
            command_id=self.command_id,
            mlx_memory=None if self.memory is None else self.memory.shown(),
        )


class Phase(NamedTuple):
    """One recorder entry, and the phase the runner is in after it.

    They differ after an exit: the entry names what was left, the rest what goes on outside it.
    With a `sequence` it is to be answered by an Ack. `dropped` entries were lost so far because
    the pipe was full.
    """

    entry: Entry
    phase: RunnerPhase
    detail: str | None = None
    task_id: TaskId | None = None
    command_id: CommandId | None = None
    sequence: int | None = None
    dropped: int = 0


_PHASE: TypeAdapter[Phase] = TypeAdapter(Phase)


def is_phase(content: bytes) -> bool:
    """Whether a frame is one of these; all other messages are objects."""
    return content[:1] == b"["


def dump_phase(phase: Phase) -> bytes:
    return _PHASE.dump_json(phase)


def load_phase(content: bytes) -> Phase:
    """Raises pydantic's ValidationError."""
    return _PHASE.validate_json(content)

"""The last 128 entries of a runner, and the phase it is in. Lives longer than the process."""

from collections import deque
from collections.abc import Callable

from skulkd.runner.phase_frames import Entry, MemoryReading
from skulkd.runner.protocol import Phase
from skulkd.wire.diagnostics import (
    MlxMemorySnapshot,
    RunnerDiagnosticContext,
    RunnerFlightRecorderEntry,
    RunnerPhase,
)
from skulkd.wire.ids import CommandId, TaskId

ENTRIES = 128
# 128 entries of this size are a few megabytes; a sane one has a few hundred bytes.
MAX_ENTRY_BYTES = 32 * 1024


class FlightRecorder:
    """`clock` is monotonic and ours: the time in a phase does not depend on the runner's."""

    def __init__(self, at: str, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lines: deque[tuple[Entry, RunnerDiagnosticContext]] = deque(maxlen=ENTRIES)
        self.phase: RunnerPhase = "created"
        self.phase_started_at = at
        self.detail: str | None = None
        self.task_id: TaskId | None = None
        self.command_id: CommandId | None = None
        self._memory: MemoryReading | None = None
        self.last_progress_at: str | None = None
        self.dropped = 0
        self._phase_since = clock()

    @property
    def seconds_in_phase(self) -> float:
        return self._clock() - self._phase_since

    @property
    def entries(self) -> list[RunnerFlightRecorderEntry]:
        """Oldest first."""
        return [entry.shown(context) for entry, context in self._lines]

    @property
    def memory(self) -> MlxMemorySnapshot | None:
        """The last reading."""
        return None if self._memory is None else self._memory.shown()

    def restart(self, at: str) -> None:
        """A new process begins; what the one before it did stays on record."""
        self._enter("created", at)
        self.detail = None
        self.task_id = None
        self.command_id = None

    def apply(self, message: Phase, size_bytes: int, context: RunnerDiagnosticContext) -> None:
        """Keep an entry of the process that `context` names; one of absurd size is only counted."""
        if size_bytes > MAX_ENTRY_BYTES:
            self.dropped += 1
            return
        entry = message.entry
        self._lines.append((entry, context))
        self.last_progress_at = entry.at
        if message.phase != self.phase:
            self._enter(message.phase, entry.at)
        self.detail = message.detail
        self.task_id = message.task_id
        self.command_id = message.command_id
        if entry.memory is not None:
            self._memory = entry.memory

    def mark(self, entry: Entry, context: RunnerDiagnosticContext) -> None:
        """An entry of the supervisor: on record, but the runner is where it was."""
        self._lines.append((entry, context))

    def _enter(self, phase: RunnerPhase, at: str) -> None:
        self.phase = phase
        self.phase_started_at = at
        self._phase_since = self._clock()

"""What happened to one runner, over all its processes: recorder entries and milestones.

Both are bounded. Filled by `diagnostics.RunnerRecord`; knows no processes.
"""

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Literal, NamedTuple

from skulkd.runner.protocol import MlxMemoryReading, Phase, PhaseEntry
from skulkd.wire.diagnostics import (
    MlxMemorySnapshot,
    RunnerDiagnosticContext,
    RunnerFlightRecorderEntry,
    RunnerLifecycleMilestone,
    RunnerPhase,
)
from skulkd.wire.ids import CommandId, TaskId

ENTRIES = 128
# 128 entries of this size are a few megabytes; a normal one has a few hundred bytes.
MAX_ENTRY_BYTES = 32 * 1024


class FlightRecorder:
    """The last entries of a runner, and the phase it is in.

    `clock` is the daemon's: the time in a phase must not depend on the runner's clock.
    """

    def __init__(self, at: str, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: deque[tuple[PhaseEntry, RunnerDiagnosticContext]] = deque(maxlen=ENTRIES)
        self.phase: RunnerPhase = "created"
        self.phase_started_at = at
        self.detail: str | None = None
        self.task_id: TaskId | None = None
        self.command_id: CommandId | None = None
        self._memory: MlxMemoryReading | None = None
        self.last_progress_at: str | None = None
        self._phase_since = clock()

    @property
    def seconds_in_phase(self) -> float:
        return self._clock() - self._phase_since

    @property
    def entries(self) -> list[RunnerFlightRecorderEntry]:
        """Oldest first."""
        return [entry.shown(context) for entry, context in self._entries]

    @property
    def memory(self) -> MlxMemorySnapshot | None:
        """The last reading."""
        return None if self._memory is None else self._memory.shown()

    def new_process(self, at: str) -> None:
        """Reset the phase; entries of earlier processes are kept."""
        self._enter("created", at)
        self.detail = None
        self.task_id = None
        self.command_id = None

    def add(self, message: Phase, size_bytes: int, context: RunnerDiagnosticContext) -> None:
        """Keep an entry of the process in `context`, unless it is too large."""
        if size_bytes > MAX_ENTRY_BYTES:
            return
        entry = message.entry
        self._entries.append((entry, context))
        self.last_progress_at = entry.at
        if message.phase != self.phase:
            self._enter(message.phase, entry.at)
        self.detail = message.detail
        self.task_id = message.task_id
        self.command_id = message.command_id
        if entry.memory is not None:
            self._memory = entry.memory

    def add_from_daemon(self, entry: PhaseEntry, context: RunnerDiagnosticContext) -> None:
        """Add an entry without changing the runner's phase."""
        self._entries.append((entry, context))

    def _enter(self, phase: RunnerPhase, at: str) -> None:
        self.phase = phase
        self.phase_started_at = at
        self._phase_since = self._clock()


Category = Literal["life", "tasks", "routine"]
SIZES: dict[Category, int] = {"life": 14, "tasks": 12, "routine": 6}

# A runner alternates between these with every request.
_SERVING = frozenset({"RunnerReady", "RunnerRunning"})


class _Milestone(NamedTuple):
    number: int
    at: str
    name: str
    detail: str | None


class Milestones:
    """The last 32 milestones, with a limit per category.

    So the start of a runner stays visible after any number of tasks and tokens.
    """

    def __init__(self) -> None:
        self._numbers = count()
        self._kept: dict[Category, deque[_Milestone]] = {
            category: deque(maxlen=size) for category, size in SIZES.items()
        }

    def add(self, at: str, name: str, detail: str | None = None) -> None:
        """Repeated routine milestones replace each other."""
        category = _category_of(name, detail)
        kept = self._kept[category]
        if category == "routine" and kept and kept[-1][2:] == (name, detail):
            kept.pop()
        kept.append(_Milestone(next(self._numbers), at, name, detail))

    def shown(self) -> list[RunnerLifecycleMilestone]:
        """Oldest first."""
        every = sorted(milestone for kept in self._kept.values() for milestone in kept)
        return [
            RunnerLifecycleMilestone(at=milestone.at, name=milestone.name, detail=milestone.detail)
            for milestone in every
        ]


def _category_of(name: str, detail: str | None) -> Category:
    """Whether a milestone is about the runner's life, its tasks, or happens all the time."""
    if name == "event_received" or name.startswith("phase:"):
        return "routine"
    if name == "status_changed":
        return "tasks" if detail in _SERVING else "life"
    return "tasks" if "task" in name or name.startswith(("cancel_", "terminal_")) else "life"

"""How runners end: the reason as text, who is to blame, and whether to start again. Pure."""

import signal
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from skulkd.runner.exits import MEANINGS, ExitCode
from skulkd.wire.diagnostics import RunnerPhase
from skulkd.wire.ids import InstanceId
from skulkd.wire.runners import GIVEN_UP
from skulkd.worker.options import CrashPolicy

_MAX_TEXT = 2000
RESTARTED = "restarted by an operator"


def truncate(text: str) -> str:
    """Limit what a runner reports to a length that fits the state and the log."""
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "…"


def given_up_text(reason: str, why: str, instance_id: InstanceId) -> str:
    """The reason, that there are no more restarts, and the command to run after fixing it."""
    first = f"{reason.removesuffix('.')}. " if reason else ""
    command = f"skulkctl restart --instance {instance_id[:8]}"
    return f"{first}{GIVEN_UP}: {why}; after fixing it, run: {command}"


class Blame(IntEnum):
    """All ranks of a group end together; the rank with the lowest value is the cause."""

    CULPRIT = 0
    """Failed by itself."""
    LOST = 1
    """Its node left the cluster or is stopping, or an operator restarted it."""
    WAITED = 2
    """Exceeded a deadline, possibly while waiting for another rank."""
    FOLLOWED = 3
    """Ended because another rank ended."""


_FAULTS = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS})
# Exit codes of a rank that may have waited for another one.
_WAITED = frozenset(
    {
        ExitCode.FROZEN,
        ExitCode.WARMUP_WEDGE,
        ExitCode.EVAL_WEDGE,
        ExitCode.CONNECT_DEADLINE,
        ExitCode.JOIN_FROZEN,
    }
)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended. `cause` is short: a signal, an exit code, or why it was killed."""

    cause: str
    restart_helps: bool
    phase: RunnerPhase | None = None
    """The phase it was in; None when there was no process."""
    message: str | None = None
    """The runner's own error message, or the last line of its log."""
    blame: Blame = Blame.CULPRIT

    @property
    def summary(self) -> str:
        """Cause and phase, for clients whose requests failed."""
        return self.cause if self.phase is None else f"{self.cause}, during {self.phase}"

    @property
    def reason(self) -> str:
        """Cause, phase and message, for operators."""
        if self.phase is None:
            return self.cause[:1].upper() + self.cause[1:]
        message = "" if self.message is None else f": {truncate(self.message)}"
        return f"Terminated ({self.cause}) during {self.phase}{message}"


def not_started(why: str, *, restart_helps: bool) -> Ending:
    """No process was started."""
    return Ending(f"not started: {truncate(why)}", restart_helps)


def killed(
    why: str, phase: RunnerPhase, message: str | None = None, blame: Blame = Blame.CULPRIT
) -> Ending:
    """The supervisor killed it because it misbehaved or missed a deadline."""
    return Ending(f"{why}; killed by the supervisor", True, phase, message, blame)


def exited(
    exit_code: int | None,
    phase: RunnerPhase,
    *,
    reported: bool,
    message: str | None = None,
    last_line: str | None = None,
) -> Ending:
    """It ended by itself. `reported`: it sent at least one status. `last_line`: of its log."""
    if exit_code is None:
        return Ending("does not end, not even by SIGKILL", False, phase, message)
    if exit_code == -signal.SIGALRM:
        exit_code = ExitCode.JOIN_FROZEN  # joining holds the interpreter lock: an alarm ends it
    if exit_code < 0:
        # Native code may crash when it loses a peer, so a crash can be a consequence in a group.
        blame = Blame.WAITED if -exit_code in _FAULTS else Blame.CULPRIT
        cause = f"signal={-exit_code} ({_signal_name(-exit_code)})"
        return Ending(cause, True, phase, message, blame)
    if not reported:
        # Not our code chose this exit code, so the table of exit codes does not apply.
        return Ending(f"exitcode={exit_code}, before its first report", True, phase, last_line)
    try:
        meaning = MEANINGS[ExitCode(exit_code)]
    except ValueError:
        return Ending(f"exitcode={exit_code}", True, phase, message)
    if exit_code == ExitCode.CLEAN:
        return Ending("exitcode=0, without being asked", True, phase, message)
    blame = Blame.WAITED if exit_code in _WAITED else Blame.CULPRIT
    if exit_code == ExitCode.GROUP_LOST:
        blame = Blame.FOLLOWED
    cause = f"{meaning.text}, exitcode={exit_code}"
    return Ending(cause, meaning.restart_helps, phase, message, blame)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


class CrashWindow:
    """Counts crashes in a sliding window. At the limit it opens and stays open until closed."""

    def __init__(self, policy: CrashPolicy, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._clock = clock
        self._crashes: deque[float] = deque()
        self._open = False

    def record(self) -> None:
        """Count a crash that happened now."""
        self._crashes.append(self._clock())
        if self.count >= self._policy.limit:
            self._open = True

    @property
    def count(self) -> int:
        """Crashes within the window."""
        oldest = self._clock() - self._policy.window_s
        while self._crashes and self._crashes[0] <= oldest:
            self._crashes.popleft()
        return len(self._crashes)

    @property
    def open(self) -> bool:
        return self._open

    @property
    def delay_s(self) -> float:
        """How long to wait before the next start."""
        return self._policy.first_delay_s * 2.0 ** max(0, self.count - 1)

    def close(self) -> None:
        """Forget all crashes: an operator asked for a restart."""
        self._crashes.clear()
        self._open = False

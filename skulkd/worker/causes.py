"""What the end of a runner means: in words, and whether to start it again. Pure."""

import signal
from dataclasses import dataclass
from enum import IntEnum

from skulkd.runner.exits import MEANINGS, ExitCode
from skulkd.wire.diagnostics import RunnerPhase
from skulkd.wire.ids import InstanceId
from skulkd.wire.runners import GIVEN_UP

_MAX_WORDS = 2000
RESTARTED = "restarted by an operator"


def cut(words: str) -> str:
    """What a runner says, at a length that states and logs can bear."""
    return words if len(words) <= _MAX_WORDS else words[:_MAX_WORDS] + "…"


def given_up_text(reason: str, why: str, instance_id: InstanceId) -> str:
    """Reason, that nothing is started any more, and what to type after fixing it."""
    first = f"{reason.removesuffix('.')}. " if reason else ""
    command = f"skulkctl restart --instance {instance_id[:8]}"
    return f"{first}{GIVEN_UP}: {why}; after fixing it, run: {command}"


class Blame(IntEnum):
    """In a group all ranks end together; the lowest of these is where it began."""

    CULPRIT = 0
    LOST = 1
    """Its node is gone or leaving."""
    WAITED = 2
    """Ran into a deadline, perhaps because it waited for another rank."""
    FOLLOWED = 3
    """Ended because of another rank."""


_FAULTS = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS})
# Exits that another rank may be the reason of.
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
    """How a runner ended. `cause` is short: a signal, an exit code, or what we killed it for."""

    cause: str
    restart_helps: bool
    phase: RunnerPhase | None = None
    """Where it was; None when there was no process."""
    words: str | None = None
    """What the runner itself said about it, or its log."""
    blame: Blame = Blame.CULPRIT

    @property
    def summary(self) -> str:
        """Cause and place, for clients whose requests it cost."""
        return self.cause if self.phase is None else f"{self.cause}, during {self.phase}"

    @property
    def reason(self) -> str:
        """The whole story, for operators."""
        if self.phase is None:
            return self.cause[:1].upper() + self.cause[1:]
        words = "" if self.words is None else f": {cut(self.words)}"
        return f"Terminated ({self.cause}) during {self.phase}{words}"


def not_started(why: str, *, restart_helps: bool) -> Ending:
    """There was no process, or none that came to anything."""
    return Ending(f"not started: {cut(why)}", restart_helps)


def killed(
    why: str, phase: RunnerPhase, words: str | None = None, blame: Blame = Blame.CULPRIT
) -> Ending:
    """We ended it ourselves, because it did not do as it should."""
    return Ending(f"{why}; killed by the supervisor", True, phase, words, blame)


def ended(
    exit_code: int | None,
    phase: RunnerPhase,
    *,
    reported: bool,
    words: str | None = None,
    last_line: str | None = None,
) -> Ending:
    """It ended by itself. `reported` is whether it ever spoke; `last_line` is from its log."""
    if exit_code is None:
        return Ending("does not end, not even by SIGKILL", False, phase, words)
    if exit_code == -signal.SIGALRM:
        exit_code = ExitCode.JOIN_FROZEN  # joining holds the interpreter: an alarm ends it
    if exit_code < 0:
        # Native code that loses a peer may fault, so a fault may be the second in a group.
        blame = Blame.WAITED if -exit_code in _FAULTS else Blame.CULPRIT
        cause = f"signal={-exit_code} ({_signal_name(-exit_code)})"
        return Ending(cause, True, phase, words, blame)
    if not reported:
        # It never came so far as to choose its exit code, so the table does not apply.
        return Ending(f"exitcode={exit_code}, before its first report", True, phase, last_line)
    try:
        meaning = MEANINGS[ExitCode(exit_code)]
    except ValueError:
        return Ending(f"exitcode={exit_code}", True, phase, words)
    if exit_code == ExitCode.CLEAN:
        return Ending("exitcode=0, without being asked", True, phase, words)
    blame = Blame.WAITED if exit_code in _WAITED else Blame.CULPRIT
    if exit_code == ExitCode.GROUP_LOST:
        blame = Blame.FOLLOWED
    cause = f"{meaning.text}, exitcode={exit_code}"
    return Ending(cause, meaning.restart_helps, phase, words, blame)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"

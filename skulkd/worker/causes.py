"""What the end of a runner means: in words, and whether to start it again. Pure."""

import signal
from dataclasses import dataclass

from skulkd.runner.exits import MEANINGS, ExitCode
from skulkd.wire.diagnostics import RunnerPhase

_MAX_WORDS = 2000


def cut(words: str) -> str:
    """What a runner says, at a length that states and logs can bear."""
    return words if len(words) <= _MAX_WORDS else words[:_MAX_WORDS] + "…"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a runner ended. `cause` is short: a signal, an exit code, or what we killed it for."""

    cause: str
    restart_helps: bool
    phase: RunnerPhase | None = None
    """Where it was; None when there was no process."""
    words: str | None = None
    """What the runner itself said about it, or its log."""

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


def killed(why: str, phase: RunnerPhase, words: str | None = None) -> Ending:
    """We ended it ourselves, because it did not do as it should."""
    return Ending(f"{why}; killed by the supervisor", True, phase, words)


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
    if exit_code < 0:
        return Ending(f"signal={-exit_code} ({_signal_name(-exit_code)})", True, phase, words)
    if not reported:
        # It never came so far as to choose its exit code, so the table does not apply.
        return Ending(f"exitcode={exit_code}, before its first report", True, phase, last_line)
    try:
        meaning = MEANINGS[ExitCode(exit_code)]
    except ValueError:
        return Ending(f"exitcode={exit_code}", True, phase, words)
    if exit_code == ExitCode.CLEAN:
        return Ending("exitcode=0, without being asked", True, phase, words)
    return Ending(f"{meaning.text}, exitcode={exit_code}", meaning.restart_helps, phase, words)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"

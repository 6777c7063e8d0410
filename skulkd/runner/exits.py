"""Exit codes of the runner process: one table that runner and supervisor share. No MLX here."""

from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """Small numbers as shells and `sysexits` use them; ours start at 86."""

    CLEAN = 0
    FROZEN = 1
    USAGE = 2
    BAD_MODEL = 65
    CRASHED = 70
    BAD_MESSAGE = 76
    WARMUP_WEDGE = 86
    EVAL_WEDGE = 87
    CONNECT_DEADLINE = 88
    LOAD_DEADLINE = 89
    SUPERVISOR_GONE = 90
    GROUP_LOST = 91
    JOIN_FROZEN = 14


@dataclass(frozen=True, slots=True)
class ExitMeaning:
    """What an operator reads, and whether starting the runner again can help."""

    text: str
    restart_helps: bool


MEANINGS: dict[ExitCode, ExitMeaning] = {
    ExitCode.CLEAN: ExitMeaning("stopped as asked", True),
    ExitCode.FROZEN: ExitMeaning(
        "gpu-wedge-deadline: stuck in native code past a deadline; the log has the traceback", False
    ),
    ExitCode.USAGE: ExitMeaning("started with wrong arguments", False),
    ExitCode.BAD_MODEL: ExitMeaning("the model cannot be loaded", False),
    ExitCode.CRASHED: ExitMeaning("an error that nobody expected", True),
    ExitCode.BAD_MESSAGE: ExitMeaning("supervisor and runner do not understand each other", False),
    ExitCode.WARMUP_WEDGE: ExitMeaning("gpu-wedge-deadline: warm-up did not end in time", False),
    ExitCode.EVAL_WEDGE: ExitMeaning("gpu-wedge-deadline: a step of generation did not end", False),
    ExitCode.CONNECT_DEADLINE: ExitMeaning("the other ranks could not be reached in time", True),
    ExitCode.LOAD_DEADLINE: ExitMeaning("reading the model stopped making progress", True),
    ExitCode.SUPERVISOR_GONE: ExitMeaning("the supervisor went away", True),
    ExitCode.GROUP_LOST: ExitMeaning("another rank of the group was lost", True),
    # The number of SIGALRM: a native call that holds the interpreter can be left in no other way.
    ExitCode.JOIN_FROZEN: ExitMeaning("joining the other ranks did not end in time", True),
}

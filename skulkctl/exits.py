"""The exit codes of skulkctl and their meanings. No other module defines one."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    UNREACHABLE = 5
    DEADLINE = 6
    PROBLEM = 7
    PARTIAL = 8
    UNCONFIRMED = 9
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS: dict[ExitCode, str] = {
    ExitCode.DONE: "success, also for an empty list",
    ExitCode.FAILED: "failed: the operation, the daemon or skulkctl itself failed",
    ExitCode.USAGE: "usage: invalid command line, no request was sent",
    ExitCode.NOT_FOUND: "not found: no such node, instance, model, context, key or path",
    ExitCode.REFUSED: "refused: rejected by the daemon or by skulkctl, nothing changed",
    ExitCode.UNREACHABLE: "unreachable: no daemon responded at any address of the context",
    ExitCode.DEADLINE: "timed out: the operation may still complete in the cluster",
    ExitCode.PROBLEM: "a check found a problem (doctor, probe, status --check, config validate)",
    ExitCode.PARTIAL: "partial: some nodes did not respond, results of the others are shown",
    ExitCode.UNCONFIRMED: "not confirmed: confirmation missing or declined, nothing changed",
    ExitCode.INTERRUPTED: "interrupted with Ctrl-C",
    ExitCode.TERMINATED: "terminated by SIGTERM",
}

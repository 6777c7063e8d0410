"""The exit codes of skulkctl and what each one promises. Nothing else decides a code."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """One number for each way a command can end."""

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
    ExitCode.DONE: "done; an empty list is also done",
    ExitCode.FAILED: "failed: the daemon or skulkctl itself made an error",
    ExitCode.USAGE: "usage: the command line makes no sense, nothing was sent",
    ExitCode.NOT_FOUND: "not found: no such node, instance, model, context, key or path",
    ExitCode.REFUSED: "refused: the daemon or skulkctl said no, nothing changed",
    ExitCode.UNREACHABLE: "no daemon reachable at any address of the context",
    ExitCode.DEADLINE: "the deadline passed, the work may continue in the cluster",
    ExitCode.PROBLEM: "a check found a problem (doctor, probe, status --check, config validate)",
    ExitCode.PARTIAL: "partial: some nodes did not answer, the rest is shown",
    ExitCode.UNCONFIRMED: "a confirmation is missing or was declined, nothing changed",
    ExitCode.INTERRUPTED: "interrupted with ctrl-C",
    ExitCode.TERMINATED: "ended by SIGTERM",
}

"""Having the store fetch a model, and watching it until it is there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from skulkctl.daemon.codes import STORE_NOT_CONFIGURED
from skulkctl.errors import CliError, DeadlinePassed, Unreachable
from skulkctl.exits import ExitCode
from skulkctl.progress import ProgressLine
from skulkctl.units import age_text
from skulkctl.views.read import number, text

if TYPE_CHECKING:
    from skulkctl.invocation import Invocation

WAIT_S = 3600.0
POLL_S = 0.5


def pull_into_store(call: Invocation, model: str) -> None:
    """Return when the model is in the store. Raises CliError when it cannot come."""
    from skulkctl.client import path_segment

    path = f"/store/models/{path_segment(model)}/download"
    limit_s = call.timeout_s(WAIT_S)
    answer = call.client.change("POST", path)
    end = time.monotonic() + limit_s
    with ProgressLine(call.quiet) as line:
        try:
            while (status := text(answer, "status")) in ("pending", "downloading"):
                part = number(answer, "progress") or 0.0
                error = text(answer, "error")
                line.show("fetch", error or f"the store fetches {model}: {part:.0%}", part)
                if time.monotonic() > end:
                    raise _too_late(model, limit_s)
                time.sleep(POLL_S)
                answer = call.client.get(f"{path}/status")
        except KeyboardInterrupt:
            line.clear()
            call.talk.warning(f"interrupted; the store goes on fetching {model}")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
    if status != "complete":
        raise CliError(
            f"cannot pull {model} into the store",
            text(answer, "error") or f"its status is {status}",
            hints=[f"try again, it resumes:  skulkctl model pull {model}"],
        )


def has_store(call: Invocation) -> bool:
    """Whether the cluster has a shared store; without a daemon there is none."""
    try:
        call.daemon.store_registry()
    except Unreachable:
        return False
    except CliError as error:
        if error.code == STORE_NOT_CONFIGURED:
            return False
        raise
    return True


def _too_late(model: str, limit_s: float) -> DeadlinePassed:
    return DeadlinePassed(
        f"{model} is not in the store yet",
        f"waited {age_text(limit_s)}; the store goes on",
        hints=["skulkctl store"],
    )

"""Downloads by the store host, and waiting for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skulkctl.daemon.codes import STORE_NOT_CONFIGURED
from skulkctl.errors import CliError, DeadlinePassed, Unreachable
from skulkctl.output.progress import Part, Progress
from skulkctl.output.units import age_text
from skulkctl.polling import poll_until

if TYPE_CHECKING:
    from skulkctl.cli import Invocation
    from skulkd.wire.storage import StoreDownloadAnswer

WAIT_S = 3600.0
POLL_S = 0.5


def pull_into_store(call: Invocation, model: str) -> None:
    """Return when the model is in the store. Raises CliError when it cannot come."""
    limit_s = call.timeout_s(WAIT_S)
    answers = [call.daemon.pull(model)]
    call.if_interrupted = f"the store continues downloading {model}"
    with Progress(call.quiet) as line:

        def fetch(_left_s: float) -> StoreDownloadAnswer:
            return answers.pop() if answers else call.daemon.pull_status(model)

        def find(answer: StoreDownloadAnswer) -> StoreDownloadAnswer | None:
            if answer.status not in ("pending", "downloading"):
                return answer
            part = answer.progress or 0.0
            text = answer.error or f"the store is downloading {model}: {part:.0%}"
            percent = Part("the store", "downloading", round(part * 100), 100, "%")
            line.show("fetch", text, [percent], answer.error or model)
            return None

        found = poll_until(fetch, find, limit_s, every_s=POLL_S)
    if found is None:
        raise _too_late(model, limit_s)
    if found.status != "complete":
        raise CliError(
            f"cannot pull {model} into the store",
            found.error or f"its status is {found.status}",
            hints=[f"resume the download:  skulkctl model pull {model}"],
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
        f"waited {age_text(limit_s)}; the download continues",
        hints=["skulkctl store"],
    )

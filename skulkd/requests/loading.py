"""What requests need of loading on demand, and how its refusals look to a client."""

from __future__ import annotations

from typing import Protocol

from skulkd.placement.refusals import Refusal
from skulkd.requests.errors import RequestError
from skulkd.wire.instances import Instance

RETRY_AFTER_S = 5


class ModelLoader(Protocol):
    """Places models that requests ask for. `keep_s` infinite: as long as memory allows."""

    @property
    def enabled(self) -> bool:
        """Whether requests on this node may have a model placed."""

    async def load(self, model: str, keep_s: float | None = None) -> bool:
        """Place a model unless it is placed. False: no such model is known. Raises Refusal."""

    def keep(self, instance: Instance, keep_s: float) -> None:
        """Change how long an instance stays, where it was placed on demand. Does not wait."""


def as_request_error(refusal: Refusal, model: str) -> RequestError:
    """503 for what may be possible in a moment, else the reason for which it never is."""
    lines = [f"cannot load {model[:200]}: {refusal}", *(f"hint: {one}" for one in refusal.hints)]
    text = "\n".join(lines)
    if refusal.pending:
        return RequestError("not_ready", text, retry_after_s=RETRY_AFTER_S, kind=refusal.kind)
    return RequestError("cannot_place", text, kind=refusal.kind)

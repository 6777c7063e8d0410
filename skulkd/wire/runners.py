"""Status of a runner process, from its start to its end."""

from typing import Annotated, Final

from skulkd.wire.base import TaggedModel, VariantUnion

# In the reason of a `RunnerFailed` when the node, and not the runner, is the obstacle: the same
# model may well be served elsewhere. See `obstacle`.
MEMORY_GUARD: Final = "memory-guard"
STAGING_FAILED: Final = "staging-failed"
# The shared store cannot provide the files: no other node would get them either, so the
# instance is not moved.
STORE_FAILED: Final = "store-failed"
# The runner is not started again by itself: an operator has to fix something first.
GIVEN_UP: Final = "Not started again"


class RunnerIdle(TaggedModel):
    """Started, nothing asked of it yet."""


class RunnerConnecting(TaggedModel):
    """Joining its group."""


class RunnerConnected(TaggedModel):
    """In its group, no model yet."""


class RunnerLoading(TaggedModel):
    layers_loaded: int = 0
    total_layers: int = 0


class RunnerLoaded(TaggedModel):
    """Model in memory."""


class RunnerWarmingUp(TaggedModel):
    """First generation, whose answer nobody sees."""


class RunnerReady(TaggedModel):
    """Serving, nothing to do."""


class RunnerRunning(TaggedModel):
    """Serving, at work."""


class RunnerShuttingDown(TaggedModel):
    """Told to stop."""


class RunnerShutdown(TaggedModel):
    """Gone. Removes the runner from the state, so it is not seen there."""


class RunnerFailed(TaggedModel):
    error_message: str | None = None


RunnerStatus = Annotated[
    RunnerIdle
    | RunnerConnecting
    | RunnerConnected
    | RunnerLoading
    | RunnerLoaded
    | RunnerWarmingUp
    | RunnerReady
    | RunnerRunning
    | RunnerShuttingDown
    | RunnerShutdown
    | RunnerFailed,
    VariantUnion(),
]


def obstacle(status: RunnerStatus | None) -> str | None:
    """`MEMORY_GUARD` or `STAGING_FAILED` when that is why the runner does not start."""
    reason = status.error_message if isinstance(status, RunnerFailed) else None
    for marker in (MEMORY_GUARD, STAGING_FAILED):
        if reason is not None and f"{marker}: " in reason[:60]:
            return marker
    return None


def failure_codes(reason: str) -> frozenset[str]:
    """Which of the codes above the reason of a `RunnerFailed` carries.

    The status has no key for a code, so the code is written before a colon.
    """
    known = (MEMORY_GUARD, STAGING_FAILED, STORE_FAILED, GIVEN_UP)
    return frozenset(code for code in known if f"{code}: " in reason)

"""Status of a runner process, from its start to its end."""

from typing import Annotated

from skulkd.wire.base import TaggedModel, VariantUnion


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

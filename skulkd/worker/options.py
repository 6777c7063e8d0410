"""Every limit of the worker in one table. No behaviour."""

from dataclasses import dataclass, field

from skulkd.runner.protocol import RunnerOptions
from skulkd.wire.placement import DequantizeMode


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a runner may be silent. Its own limits are in `RunnerOptions`."""

    first_report_s: float = 120.0
    margin_s: float = 15.0
    """On top of the runner's own limits: it should be the first to notice, and to say why."""
    last_words_s: float = 5.0
    """From the report of a failure, or the end of its pipe, to the exit."""
    find_model_s: float = 30.0
    memory_s: float = 10.0
    """How long a shortage of memory may last: a model that was just deleted frees its own."""
    stopped_s: float = 5.0
    """How long a process that has work may be stopped by a signal."""
    look_every_s: float = 0.5
    """How often silence is looked at; it must be there twice in a row."""


@dataclass(frozen=True, slots=True)
class StopSteps:
    """Ask, then SIGTERM, then SIGKILL; how long each may take."""

    ask_s: float = 5.0
    term_s: float = 5.0
    kill_s: float = 5.0


@dataclass(frozen=True, slots=True)
class CrashPolicy:
    """`limit` crashes within `window_s` open the circuit; the wait doubles with each of them."""

    limit: int = 3
    window_s: float = 60.0
    first_delay_s: float = 0.5


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """How the nodes of one instance wait for each other."""

    beat_s: float = 1.0
    """How often the leader asks every rank where it is, when nothing changes."""
    ask_s: float = 3.0
    follow_s: float = 15.0
    """For handing a request to a rank: a long prompt takes its time on a slow network."""
    lease_s: float = 15.0
    """A node that is silent for so long is lost: its rank, or the leader, cannot be led."""
    join_s: float = 60.0
    """From the call to join until every rank has a port."""
    settle_s: float = 1.0
    """How long to wait for the rank that is to blame, when another one noticed first."""
    leave_s: float = 0.5
    """For telling the others that this node is leaving."""


@dataclass(frozen=True, slots=True)
class LogLimits:
    max_bytes: int = 4 * 1024**2
    files: int = 3
    """Of one runner: the current one and older parts."""
    runners: int = 20
    """Runners whose logs are kept."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    runner: RunnerOptions = field(default_factory=RunnerOptions)
    patience: Patience = field(default_factory=Patience)
    stop: StopSteps = field(default_factory=StopSteps)
    crashes: CrashPolicy = field(default_factory=CrashPolicy)
    group: GroupLimits = field(default_factory=GroupLimits)
    log: LogLimits = field(default_factory=LogLimits)
    queue_limit: int = 32
    """Requests that may wait for a place in an instance, besides those that have one."""
    stream_bytes: int = 1024**2
    """What may lie unread for one request before it is cut off."""
    dequantize: DequantizeMode = "auto"
    """Whether runners here may unpack weights to float32; `off` wherever a GPU computes."""
    cuda: bool = False
    """Whether MLX computes on an NVIDIA GPU here."""

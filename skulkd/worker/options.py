"""All limits of the worker, and how they follow from the settings of the node."""

from dataclasses import dataclass, field

from skulkd.machine.mlx_build import mlx_build
from skulkd.runner.protocol import RunnerOptions
from skulkd.wire.config import RuntimeSection
from skulkd.wire.placement import DequantizeMode

_MIB = 1024**2


@dataclass(frozen=True, slots=True)
class RunnerTimeouts:
    """Enforced by the daemon. The runner's own deadlines are in `RunnerOptions`."""

    first_report_s: float = 120.0
    margin_s: float = 15.0
    """Added to the runner's own deadlines, so that it detects and explains a problem first."""
    exit_s: float = 5.0
    """From the report of a failure, or from the end of its pipe, until it has exited."""
    find_model_s: float = 30.0
    memory_s: float = 10.0
    """How long to wait for memory: a model that was just deleted takes time to free its own."""
    stopped_s: float = 5.0
    """How long a process with open tasks may be stopped by a signal."""
    poll_s: float = 0.5
    """How often deadlines are checked; one must be exceeded in two checks in a row."""


@dataclass(frozen=True, slots=True)
class StopSteps:
    """How long to wait after the request to stop, after SIGTERM and after SIGKILL."""

    ask_s: float = 5.0
    term_s: float = 5.0
    kill_s: float = 5.0


@dataclass(frozen=True, slots=True)
class CrashPolicy:
    """`limit` crashes within `window_s` end the restarts; the delay doubles with each crash."""

    limit: int = 3
    window_s: float = 60.0
    first_delay_s: float = 0.5


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Timeouts of the messages between the nodes of one instance."""

    heartbeat_s: float = 1.0
    """How often the leader sends its goal to every rank when nothing changes."""
    request_s: float = 3.0
    follow_s: float = 15.0
    """For passing a request on to a rank; a long prompt on a slow network takes a while."""
    lease_s: float = 15.0
    """A node that has been silent for this long is treated as lost."""
    join_s: float = 60.0
    """From the beginning of an attempt until every rank has a port."""
    settle_s: float = 1.0
    """How long to wait for reports of other ranks before the cause of an end is decided."""
    leave_s: float = 0.5
    """For informing the other nodes that this one is stopping."""


@dataclass(frozen=True, slots=True)
class LogLimits:
    max_bytes: int = 4 * 1024**2
    files: int = 3
    """Of one runner: the current file and rotated ones."""
    runners: int = 20
    """Runners whose logs are kept."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    runner: RunnerOptions = field(default_factory=RunnerOptions)
    timeouts: RunnerTimeouts = field(default_factory=RunnerTimeouts)
    stop: StopSteps = field(default_factory=StopSteps)
    crashes: CrashPolicy = field(default_factory=CrashPolicy)
    group: GroupLimits = field(default_factory=GroupLimits)
    log: LogLimits = field(default_factory=LogLimits)
    queue_limit: int = 128
    """Requests that may be queued for an instance, besides those that are running."""
    stream_bytes: int = 1024**2
    """How much unread output one request may have before it is cancelled."""
    dequantize: DequantizeMode = "auto"
    """Whether runners here may unpack weights to float32; `off` wherever a GPU computes."""
    cuda: bool = False
    """Whether MLX computes on an NVIDIA GPU here."""


def worker_options(runtime: RuntimeSection) -> WorkerOptions:
    runner = RunnerOptions(
        max_concurrent=runtime.max_concurrent_requests,
        prefix_cache_bytes=runtime.prefix_cache_mib * _MIB,
        default_max_tokens=runtime.max_output_tokens,
        cores=runtime.cores,
        blas=runtime.blas,
        warmup_deadline_s=runtime.warmup_deadline_seconds,
        connect_deadline_s=runtime.group_connect_deadline_seconds,
    )
    return WorkerOptions(
        runner=runner,
        queue_limit=runtime.queue,
        dequantize=runtime.dequantize if mlx_build() == "cpu" else "off",
        cuda=mlx_build() == "cuda",
    )

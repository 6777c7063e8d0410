"""Messages between a supervisor and its runner. Imports no MLX, so the daemon may use it.

One message is one frame (`framing.py`) with JSON `{"ClassName": {fields}}` in it. A request
leaves two dozen phases, most of what a runner sends, so a phase is a shorter array.
"""

import asyncio
from typing import Annotated, Any, NamedTuple

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, TypeAdapter, ValidationError

from skulkd.runner.framing import pack, read_frame
from skulkd.wire import tasks
from skulkd.wire.base import Attributes, CamelModel, Memory, TaggedModel, VariantUnion
from skulkd.wire.chat import (
    FinishReason,
    GenerationStats,
    LogprobsContentItem,
    ToolCallItem,
    Usage,
)
from skulkd.wire.diagnostics import (
    MlxMemorySnapshot,
    RunnerDiagnosticContext,
    RunnerFlightRecorderEntry,
    RunnerPhase,
)
from skulkd.wire.ids import CommandId, InstanceId, NodeId, RunnerId, TaskId
from skulkd.wire.instances import Host
from skulkd.wire.runners import RunnerStatus
from skulkd.wire.shards import ShardMetadata
from skulkd.wire.timeline import RunnerCompute
from skulkd.wire.tracing import TraceEventResponse

_SOURCE = "mlx.core"


class MlxMemoryReading(NamedTuple):
    """MLX memory in bytes. `wired_limit` is known only where Metal is."""

    at: str
    active: int
    cache: int
    peak: int
    wired_limit: int | None = None

    def shown(self) -> MlxMemorySnapshot:
        return MlxMemorySnapshot(
            generated_at=self.at,
            active=Memory.of(self.active),
            cache=Memory.of(self.cache),
            peak=Memory.of(self.peak),
            wired_limit=None if self.wired_limit is None else Memory.of(self.wired_limit),
            source=_SOURCE,
        )


class PhaseEntry(NamedTuple):
    """One line of the flight recorder."""

    at: str
    phase: RunnerPhase
    event: str
    attrs: Attributes
    detail: str | None = None
    task_id: TaskId | None = None
    command_id: CommandId | None = None
    memory: MlxMemoryReading | None = None

    def shown(self, context: RunnerDiagnosticContext) -> RunnerFlightRecorderEntry:
        """As diagnostics show it, for the process that `context` names."""
        return RunnerFlightRecorderEntry(
            at=self.at,
            phase=self.phase,
            event=self.event,
            detail=self.detail,
            attrs=self.attrs,
            context=context,
            task_id=self.task_id,
            command_id=self.command_id,
            mlx_memory=None if self.memory is None else self.memory.shown(),
        )


class Phase(NamedTuple):
    """One recorder entry, and the phase the runner is in after it.

    They differ after an exit: the entry names the span that was left. A phase with a `sequence`
    is answered by an Ack. `dropped` entries were lost so far because the pipe was full.
    """

    entry: PhaseEntry
    phase: RunnerPhase
    detail: str | None = None
    task_id: TaskId | None = None
    command_id: CommandId | None = None
    sequence: int | None = None
    dropped: int = 0


DEFAULT_WARMUP_DEADLINE_S = 300.0
DEFAULT_EVAL_DEADLINE_S = 60.0
DEFAULT_CONNECT_DEADLINE_S = 120.0
DEFAULT_LAYER_DEADLINE_S = 300.0


class RunnerOptions(CamelModel):
    """How this runner serves. The supervisor fills it from the settings."""

    max_concurrent: PositiveInt = Field(default=8, description="Sequences decoded together.")
    prefill_step: PositiveInt | None = Field(
        default=None, description="Prompt tokens per step; null: chosen by measured speed."
    )
    prefix_cache_bytes: NonNegativeInt = Field(default=1 << 30, description="0 turns it off.")
    context_token_limit: PositiveInt | None = Field(
        default=None, description="Prompt and answer; null: what the model's config allows."
    )
    default_max_tokens: PositiveInt = Field(default=4096, description="When a request has none.")
    cores: NonNegativeInt = Field(
        default=0, description="To compute with when there is no accelerator; 0: its share of all."
    )
    blas: str = Field(
        default="auto", description="`runtime.blas`: auto, bundled, system, off or a path."
    )
    float32: bool = Field(
        default=False, description="Unpack weights; in a group only if all ranks may."
    )
    trust_remote_code: bool = Field(
        default=False, description="Whether Python files in the model directory may run."
    )
    connect_deadline_s: PositiveFloat = DEFAULT_CONNECT_DEADLINE_S
    layer_deadline_s: PositiveFloat = Field(
        default=DEFAULT_LAYER_DEADLINE_S, description="Longest time to read one layer."
    )
    warmup_deadline_s: PositiveFloat = DEFAULT_WARMUP_DEADLINE_S
    eval_deadline_s: PositiveFloat = Field(
        default=DEFAULT_EVAL_DEADLINE_S, description="Longest time for one step of generation."
    )


class GenerationOptions(CamelModel):
    """What a request asks for and the task's parameters have no field for."""

    prompt: str | None = Field(default=None, description="Raw text; no chat template is used.")
    n: PositiveInt = 1
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = Field(default=None, description="By token id.")
    response_format: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    field_names: dict[str, str] = Field(
        default_factory=dict,
        exclude_if=lambda names: not names,
        description="How the client's API calls a field, for errors; only where it differs.",
    )

    def name_of(self, field: str) -> str:
        """The name under which the client knows a field."""
        return self.field_names.get(field, field)


# --- supervisor to runner ---


class JacclLinks(CamelModel):
    """What MLX needs to join a group over RDMA."""

    devices: list[list[str | None]] = Field(
        description="Row and column are ranks; the RDMA device from one to the other."
    )
    coordinator: str = Field(description="Where rank 0 waits for the others, host:port.")


class TlsPaths(CamelModel):
    """PEM files of this node, as in `cluster.tls`."""

    certificate: str
    key: str
    authority: str


class RankLinks(CamelModel):
    """How this rank's own connections to the others are bound, authenticated and encrypted."""

    key: str = Field(repr=False, description="Of this attempt of this group; hex.")
    addresses: list[str] = Field(description="Of this machine; here rank 0 waits for the others.")
    ring_address: str = Field(description="Of this machine; here the rank before dials the ring.")
    tls: TlsPaths | None = Field(default=None, description="Set: encrypt these connections.")


class Configure(TaggedModel):
    """First message, once: who the runner is and what it will hold."""

    node_id: NodeId
    runner_id: RunnerId
    instance_id: InstanceId
    model_path: str
    shard: ShardMetadata
    options: RunnerOptions = Field(default_factory=RunnerOptions)
    group: list[Host] | None = Field(
        default=None, description="Address of every rank, in rank order; null for one rank."
    )
    links: RankLinks | None = Field(default=None, description="Needed with `group`.")
    jaccl: JacclLinks | None = Field(
        default=None, description="Set: join over Thunderbolt RDMA instead of the TCP ring."
    )


class RunTask(TaggedModel):
    task: tasks.Task
    generation: GenerationOptions | None = None


class Cancel(TaggedModel):
    task_id: TaskId


class Ack(TaggedModel):
    """The phase entry with this sequence is in the flight recorder."""

    sequence: int


# --- runner to supervisor ---


class Status(TaggedModel):
    status: RunnerStatus


class TaskAcknowledged(TaggedModel):
    task_id: TaskId


class TaskStatus(TaggedModel):
    """`error_type` is `invalid_request_error` for what no retry will cure."""

    task_id: TaskId
    status: tasks.TaskStatus
    error_type: str | None = None
    error_message: str | None = None


class OutputItem(CamelModel):
    """What one step added to one choice."""

    choice: int = 0
    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCallItem] | None = None
    tokens: int = Field(default=0, description="Tokens that this item stands for.")
    logprobs: list[LogprobsContentItem] | None = None
    finish_reason: FinishReason | None = None
    stop_sequence: str | None = Field(
        default=None, description="The stop string that ended the choice; null: another reason."
    )


class EmbeddingItem(CamelModel):
    """The vector of one input."""

    index: int
    vector: str = Field(description="Base64 of little-endian float32.")


class Output(TaggedModel):
    """`usage`, `stats` and `queued_s` come once, with the last items of the task."""

    task_id: TaskId
    items: list[OutputItem] = Field(default_factory=list)
    embeddings: list[EmbeddingItem] = Field(default_factory=list)
    usage: Usage | None = None
    stats: GenerationStats | None = None
    queued_s: float | None = Field(
        default=None, description="How long the task waited in the runner to be admitted."
    )


class PrefillProgress(TaggedModel):
    """`processed` counts tokens found in the prefix cache too."""

    task_id: TaskId
    processed: int
    total: int


class Pulse(TaggedModel):
    """What the runner is doing at this moment, sent by its watchdog every second while it works.

    Entries record what was started; only this distinguishes a rank that waits in a collective
    from one that has not entered it.
    """

    busy: bool
    step: int = Field(default=0, description="Steps begun; counts the same on every rank.")
    moves: int = Field(default=0, description="Waits that have ended.")
    site: str | None = Field(default=None, description="What it waits in; null: its own work.")
    site_s: float = Field(default=0.0, description="For how long.")


class Computing(TaggedModel):
    """What this runner computes with; sent once, when the model is loaded."""

    compute: RunnerCompute


class TaskTrace(TaggedModel):
    """What one rank measured of a traced task; sent once, when the task ended on that rank."""

    task_id: TaskId
    rank: int
    traces: list[TraceEventResponse]


ToRunner = Configure | RunTask | Cancel | Ack
_Tagged = (
    Status
    | TaskAcknowledged
    | TaskStatus
    | Output
    | PrefillProgress
    | Pulse
    | Computing
    | TaskTrace
)
FromRunner = _Tagged | Phase
_PHASE: TypeAdapter[Phase] = TypeAdapter(Phase)
_TO_RUNNER: TypeAdapter[ToRunner] = TypeAdapter(Annotated[ToRunner, VariantUnion()])
_FROM_RUNNER: TypeAdapter[FromRunner] = TypeAdapter(Annotated[_Tagged, VariantUnion()])


class ProtocolError(Exception):
    """A frame whose content is no message of this protocol."""


def encode(message: ToRunner | FromRunner) -> bytes:
    """The message as a frame. Raises FrameError when it does not fit one."""
    if isinstance(message, Phase):
        return pack(_PHASE.dump_json(message))
    return pack(message.model_dump_json(exclude_defaults=True).encode())


def decode_to_runner(frame: bytes) -> ToRunner:
    """Raises ProtocolError."""
    try:
        return _TO_RUNNER.validate_json(frame)
    except ValidationError as error:
        raise ProtocolError(_first_problem(error)) from error


def decode_from_runner(frame: bytes) -> FromRunner:
    """Raises ProtocolError."""
    try:
        # Phases are arrays, all other messages are objects.
        phase = frame[:1] == b"["
        return _PHASE.validate_json(frame) if phase else _FROM_RUNNER.validate_json(frame)
    except ValidationError as error:
        raise ProtocolError(_first_problem(error)) from error


async def read_from_runner(reader: asyncio.StreamReader) -> FromRunner | None:
    """The next message, None at a clean end. Raises FrameError and ProtocolError."""
    frame = await read_frame(reader)
    return None if frame is None else decode_from_runner(frame)


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]

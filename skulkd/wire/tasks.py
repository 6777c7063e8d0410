"""Work for runners. Parameters inside a task keep snake_case, as the chat request has it."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from skulkd.wire.base import SnakeModel, TaggedModel, VariantUnion
from skulkd.wire.cards import ReasoningEffort
from skulkd.wire.ids import CommandId, InstanceId, ModelId, NodeId, RunnerId, TaskId
from skulkd.wire.instances import BoundInstance
from skulkd.wire.shards import ShardMetadata

TaskStatus = Literal["Pending", "Running", "Complete", "TimedOut", "Failed", "Cancelled"]


def _empty_map(value: Any) -> Any:
    """Older versions wrote an empty list here, and their journals are still read."""
    return {} if value == [] else value


class InputMessage(SnakeModel):
    role: str
    content: str


class TextGenerationTaskParams(SnakeModel):
    model: ModelId
    input: list[InputMessage]
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stream: bool = False
    tools: list[dict[str, Any]] | None = None
    bench: bool = False
    top_k: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    chat_template_messages: list[dict[str, Any]] | None = None
    reasoning_effort: ReasoningEffort | None = None
    enable_thinking: bool | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    repetition_context_size: int | None = None
    images: list[str] = Field(default_factory=list)
    image_hashes: Annotated[dict[str, str], BeforeValidator(_empty_map)] = Field(
        default_factory=dict
    )
    total_input_chunks: int = 0
    image_count: int = 0


class OtherTaskParams(SnakeModel):
    """Parameters of work we pass on without reading: images."""

    model_config = ConfigDict(extra="allow")

    model: ModelId


class TextEmbeddingTaskParams(OtherTaskParams):
    input: list[str | list[int]] = Field(
        default_factory=list,
        description="Texts, or their token ids.",
        exclude_if=lambda value: not value,
    )
    dimensions: int | None = Field(
        default=None,
        description="Length of the vectors; null: the model's own.",
        exclude_if=lambda value: value is None,
    )
    truncate: bool = Field(
        default=False,
        description="Cut inputs that are too long instead of refusing them.",
        exclude_if=lambda value: not value,
    )


class BaseTask(TaggedModel):
    task_id: TaskId
    task_status: TaskStatus = "Pending"
    instance_id: InstanceId


class CreateRunner(BaseTask):
    bound_instance: BoundInstance


class DownloadModel(BaseTask):
    shard_metadata: ShardMetadata


class ConnectToGroup(BaseTask):
    """Join the ranks of the instance."""


class LoadModel(BaseTask):
    """Read the weights of the shard."""


class StartWarmup(BaseTask):
    """Run a first short generation."""


class BaseRequestTask(BaseTask):
    """A task that a client waits for."""

    command_id: CommandId
    owner_node: NodeId | None = Field(
        default=None, description="Node whose API accepted the request."
    )
    task_params: TextGenerationTaskParams | OtherTaskParams
    trace_enabled: bool = False
    error_type: str | None = None
    error_message: str | None = None


class TextGeneration(BaseRequestTask):
    task_params: TextGenerationTaskParams


class ImageGeneration(BaseRequestTask):
    task_params: OtherTaskParams


class ImageEdits(BaseRequestTask):
    task_params: OtherTaskParams


class TextEmbedding(BaseRequestTask):
    task_params: TextEmbeddingTaskParams


ServedTask = TextGeneration | TextEmbedding
"""Requests that runners here answer."""


class CancelTask(BaseTask):
    cancelled_task_id: TaskId
    runner_id: RunnerId


class Shutdown(BaseTask):
    runner_id: RunnerId


Task = Annotated[
    CreateRunner
    | DownloadModel
    | ConnectToGroup
    | LoadModel
    | StartWarmup
    | TextGeneration
    | ImageGeneration
    | ImageEdits
    | TextEmbedding
    | CancelTask
    | Shutdown,
    VariantUnion(),
]

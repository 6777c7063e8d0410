"""Models that can be placed: `GET /v1/models`."""

from time import time
from typing import Literal

from pydantic import Field

from skulkd.wire.base import SnakeModel
from skulkd.wire.cards import ReasoningEffort
from skulkd.wire.ids import ModelId


class ReasoningCapabilitySection(SnakeModel):
    supports_toggle: bool | None = None
    supports_budget: bool | None = None
    format: str | None = None
    default_effort: ReasoningEffort | None = None
    disabled_effort: ReasoningEffort | None = None


class ModalitiesCapabilitySection(SnakeModel):
    supports_audio_input: bool | None = None
    supports_native_multimodal: bool | None = None


class ToolingCapabilitySection(SnakeModel):
    supports_tool_calling: bool | None = None
    builtin_tools: list[str] | None = None
    tool_call_format: str | None = None


class RuntimeCapabilitySection(SnakeModel):
    prompt_renderer: str | None = None
    output_parser: str | None = None


class ResolvedModelCapabilities(SnakeModel):
    """What the card says, with every gap filled by the defaults of the model's family."""

    family: str = ""
    supports_thinking: bool = False
    supports_thinking_toggle: bool = False
    supports_thinking_budget: bool = False
    default_reasoning_effort: ReasoningEffort = "medium"
    disabled_reasoning_effort: ReasoningEffort = "none"
    thinking_format: str = "none"
    supports_image_input: bool = False
    supports_audio_input: bool = False
    supports_tool_calling: bool = False
    builtin_tools: list[str] = Field(default_factory=list)
    tool_call_format: str = "generic"
    prompt_renderer: str = "tokenizer"
    output_parser: str = "generic"
    supports_native_multimodal: bool = False


class ModelListModel(SnakeModel):
    id: str
    object: str = "model"
    created: int = Field(
        default_factory=lambda: int(time()), description="Time of the answer, Unix seconds."
    )
    owned_by: str = "skulk"
    hugging_face_id: str = ""
    name: str = ""
    description: str = ""
    context_length: int = Field(default=0, description="Tokens; 0 means unknown.")
    tags: list[str] = Field(default_factory=list)
    storage_size_megabytes: int = 0
    supports_tensor: bool = False
    tasks: list[str] = Field(default_factory=list)
    is_custom: bool = False
    family: str = ""
    quantization: str = ""
    base_model: str = ""
    capabilities: list[str] = Field(default_factory=list)
    reasoning: ReasoningCapabilitySection | None = None
    modalities: ModalitiesCapabilitySection | None = None
    tooling: ToolingCapabilitySection | None = None
    runtime: RuntimeCapabilitySection | None = None
    resolved_capabilities: ResolvedModelCapabilities | None = None


class ModelList(SnakeModel):
    object: Literal["list"] = "list"
    data: list[ModelListModel]


class AddCustomModelParams(SnakeModel):
    model_id: ModelId


class DeleteCustomModelResponse(SnakeModel):
    message: str
    model_id: ModelId

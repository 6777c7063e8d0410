"""Model cards: what a model is, what it needs and what it can do."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt

from skulkd.wire.base import CamelModel, Memory
from skulkd.wire.ids import ModelId

ModelTask = Literal["TextGeneration", "TextToImage", "ImageToImage", "TextEmbedding"]
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
ReasoningFormat = Literal["none", "token_delimited", "channel_delimited"]
ToolCallFormat = Literal["generic", "gemma4", "gpt_oss", "dsml"]
BuiltinToolType = Literal["web_search", "open_url", "extract_page"]
PromptRendererType = Literal["tokenizer", "gemma4", "dsml"]
OutputParserType = Literal["generic", "gemma4", "gpt_oss", "deepseek_v32"]


def _sorted_unique(names: list[str]) -> list[str]:
    return sorted(set(names))


class ComponentInfo(CamelModel):
    """One separately stored part of an image model."""

    component_name: str
    component_path: str
    storage_size: Memory
    n_layers: PositiveInt | None = None
    can_shard: bool
    safetensors_index_filename: str | None = None


class VisionCardConfig(CamelModel):
    image_token_id: int | None = None
    model_type: str = ""
    weights_repo: str = Field(default="", description="Empty means the model's own repository.")
    image_token: str | None = None
    processor_repo: str | None = None
    boi_token_id: int | None = Field(default=None, description="Begin-of-image token.")
    eoi_token_id: int | None = Field(default=None, description="End-of-image token.")


class ReasoningCardConfig(CamelModel):
    supports_toggle: bool | None = None
    supports_budget: bool | None = None
    format: ReasoningFormat | None = None
    default_effort: ReasoningEffort | None = None
    disabled_effort: ReasoningEffort | None = None


class ModalitiesCardConfig(CamelModel):
    supports_audio_input: bool | None = None
    supports_native_multimodal: bool | None = None


class ToolingCardConfig(CamelModel):
    supports_tool_calling: bool | None = None
    tool_call_format: ToolCallFormat | None = None
    builtin_tools: list[BuiltinToolType] | None = None


class RuntimeCapabilityCardConfig(CamelModel):
    """How to prompt and parse; the `mtp` fields describe multi-token prediction heads."""

    prompt_renderer: PromptRendererType | None = None
    output_parser: OutputParserType | None = None
    metal_fast_synch: bool | None = None
    mtp_heads: bool | None = None
    mtp_max_depth: int | None = None
    mtp_sidecar_repo: str | None = None
    mtp_norm_convention: Literal["zero_centered", "actual_scale"] | None = None
    mtp_concat_order: Literal["embed_first", "hidden_first"] | None = None
    speculative_multi_node: bool | None = None
    assistant_model_repo: str | None = None


class PlacementCardConfig(CamelModel):
    compatible_backends: Annotated[list[str], AfterValidator(_sorted_unique)] = Field(
        default_factory=lambda: ["mlx"]
    )
    min_vram_gib: float | None = None
    max_context_tokens: int | None = None
    backend_preference: list[str] = Field(default_factory=list, description="Best first.")


class ModelCard(CamelModel):
    model_id: ModelId
    storage_size: Memory = Field(description="All weight files together.")
    n_layers: PositiveInt
    hidden_size: PositiveInt
    supports_tensor: bool = Field(description="Whether tensor sharding is possible.")
    num_key_value_heads: PositiveInt | None = None
    tasks: list[ModelTask]
    components: list[ComponentInfo] | None = None
    family: str = ""
    quantization: str = ""
    base_model: str = ""
    gguf_file: str | None = Field(default=None, description="Set when the weights are one GGUF.")
    capabilities: list[str] = Field(default_factory=list)
    context_length: int = Field(default=0, description="Tokens; 0 means unknown.")
    uses_cfg: bool = Field(default=False, description="Classifier-free guidance (image models).")
    trust_remote_code: bool = True
    is_custom: bool = False
    vision: VisionCardConfig | None = None
    reasoning: ReasoningCardConfig | None = None
    modalities: ModalitiesCardConfig | None = None
    tooling: ToolingCardConfig | None = None
    runtime: RuntimeCapabilityCardConfig | None = None
    placement: PlacementCardConfig = Field(default_factory=PlacementCardConfig)

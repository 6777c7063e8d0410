"""Cards as entries of `GET /models`, completed with the defaults of the model's family. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel

from skulkd.wire.cards import (
    ModelCard,
    OutputParserType,
    PromptRendererType,
    ReasoningCardConfig,
    ReasoningFormat,
    RuntimeCapabilityCardConfig,
    ToolCallFormat,
    ToolingCardConfig,
)
from skulkd.wire.catalogue import (
    ModalitiesCapabilitySection,
    ModelList,
    ModelListModel,
    ReasoningCapabilitySection,
    ResolvedModelCapabilities,
    RuntimeCapabilitySection,
    ToolingCapabilitySection,
)

_MIB = 1024**2

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class _FamilyDefaults:
    """What all models of a family do unless their card says otherwise."""

    thinking: bool = False
    thinking_format: ReasoningFormat = "none"
    tool_calling: bool = False
    tool_call_format: ToolCallFormat = "generic"
    prompt_renderer: PromptRendererType = "tokenizer"
    output_parser: OutputParserType = "generic"


_GEMMA_4 = _FamilyDefaults(True, "channel_delimited", True, "gemma4", "gemma4", "gemma4")
_DEEPSEEK_V32 = _FamilyDefaults(True, "token_delimited", True, "dsml", "dsml", "deepseek_v32")
_GPT_OSS = _FamilyDefaults(tool_calling=True, tool_call_format="gpt_oss", output_parser="gpt_oss")
_QWEN_3 = _FamilyDefaults(True, "token_delimited")
_GENERIC = _FamilyDefaults()


def model_list(cards: Iterable[ModelCard], created: int) -> ModelList:
    """The answer of `GET /models`; `created` is the time of the answer in Unix seconds."""
    return ModelList(data=[model_entry(card, created) for card in cards])


def model_entry(card: ModelCard, created: int) -> ModelListModel:
    resolved = resolve_capabilities(card)
    return ModelListModel(
        id=card.model_id,
        created=created,
        hugging_face_id=card.model_id,
        name=_short_id(card),
        description=_description(card),
        context_length=card.context_length,
        tags=_tags(card, resolved),
        storage_size_megabytes=round(card.storage_size.in_bytes / _MIB),
        supports_tensor=card.supports_tensor,
        tasks=list(card.tasks),
        is_custom=card.is_custom,
        family=card.family,
        quantization=card.quantization,
        base_model=card.base_model,
        capabilities=card.capabilities,
        reasoning=_section(ReasoningCapabilitySection, card.reasoning),
        modalities=_section(ModalitiesCapabilitySection, card.modalities),
        tooling=_section(ToolingCapabilitySection, card.tooling),
        runtime=_section(RuntimeCapabilitySection, card.runtime),
        resolved_capabilities=resolved,
    )


def resolve_capabilities(card: ModelCard) -> ResolvedModelCapabilities:
    """What the model can do: its card first, then its family, then the general rule."""
    family = _family_defaults(card)
    reasoning = card.reasoning or ReasoningCardConfig()
    tooling = card.tooling or ToolingCardConfig()
    runtime = card.runtime or RuntimeCapabilityCardConfig()
    native, audio = _modalities(card)
    tagged = "thinking" in card.capabilities
    toggle = "thinking_toggle" in card.capabilities or family.thinking
    toggle = _or_default(reasoning.supports_toggle, toggle)
    # A card that denies the format denies thinking as well.
    thinking = (tagged or toggle or family.thinking) and reasoning.format != "none"
    return ResolvedModelCapabilities(
        family=card.family or _short_id(card).partition("-")[0].lower(),
        supports_thinking=thinking,
        supports_thinking_toggle=thinking and toggle,
        supports_thinking_budget=_or_default(reasoning.supports_budget, False),
        default_reasoning_effort=reasoning.default_effort or "medium",
        disabled_reasoning_effort=reasoning.disabled_effort or "none",
        thinking_format=reasoning.format or family.thinking_format,
        supports_image_input="vision" in card.capabilities or card.vision is not None or native,
        supports_audio_input=audio,
        supports_tool_calling=_or_default(tooling.supports_tool_calling, family.tool_calling),
        builtin_tools=list(tooling.builtin_tools or []),
        tool_call_format=tooling.tool_call_format or family.tool_call_format,
        prompt_renderer=runtime.prompt_renderer or family.prompt_renderer,
        output_parser=runtime.output_parser or family.output_parser,
        supports_native_multimodal=native,
    )


def _family_defaults(card: ModelCard) -> _FamilyDefaults:
    name = _short_id(card).lower()
    if "gemma-4" in name or "gemma4" in name:
        return _GEMMA_4
    if "deepseek-v3.2" in name:
        return _DEEPSEEK_V32
    if "gpt-oss" in name:
        return _GPT_OSS
    if name.startswith("qwen3") and "coder" not in name:
        return _QWEN_3
    return _GENERIC


def _short_id(card: ModelCard) -> str:
    return card.model_id.rpartition("/")[2]


def _or_default(value: bool | None, default: bool) -> bool:
    return default if value is None else value


def _description(card: ModelCard) -> str:
    name = card.base_model or _short_id(card)
    size = f"{card.storage_size.in_bytes / 1024**3:.1f} GiB"
    parts = [name, card.quantization, f"{card.n_layers} layers", size]
    return ", ".join(part for part in parts if part)


def _tags(card: ModelCard, resolved: ResolvedModelCapabilities) -> list[str]:
    tags = {
        "optiq": "optiq" in f"{card.model_id} {card.quantization}".lower(),
        "thinking": resolved.supports_thinking,
        "vision": resolved.supports_image_input,
        "tensor": card.supports_tensor,
        "embedding": "TextEmbedding" in card.tasks,
    }
    return [name for name, present in tags.items() if present]


def _modalities(card: ModelCard) -> tuple[bool, bool]:
    """Native multimodal, and audio input."""
    section = card.modalities
    if section is None:
        return False, False
    return (
        _or_default(section.supports_native_multimodal, False),
        _or_default(section.supports_audio_input, False),
    )


def _section(kind: type[T], section: BaseModel | None) -> T | None:
    """A section of the card as the response has it; the lenient model drops unknown keys."""
    return None if section is None else kind.model_validate(section.model_dump(by_alias=False))

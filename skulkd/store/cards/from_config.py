"""Makes a card from the `config.json` of a model."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from skulkd.store.errors import BrokenModelError, FileAccessError
from skulkd.store.model_directory import CONFIG_FILE, INDEX_FILE, MODULES_FILE, read_json_object
from skulkd.store.model_ids import check_model_id
from skulkd.wire.base import Memory
from skulkd.wire.cards import ModelCard, ToolingCardConfig, VisionCardConfig

_LAYER_KEYS = (
    "num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_decoder_layers",
    "decoder_layers",
)  # fmt: skip
# The architectures that the reference shards by tensor.
_TENSOR_ARCHITECTURES = frozenset({
    "Glm4MoeLiteForCausalLM", "GlmMoeDsaForCausalLM", "DeepseekV32ForCausalLM",
    "DeepseekV3ForCausalLM", "Qwen3NextForCausalLM", "Qwen3MoeForCausalLM",
    "Qwen3_5MoeForConditionalGeneration", "Qwen3_5ForConditionalGeneration",
    "MiniMaxM2ForCausalLM", "LlamaForCausalLM", "GptOssForCausalLM", "Step3p5ForCausalLM",
    "NemotronHForCausalLM",
})  # fmt: skip
_FAMILIES = (
    "llama", "qwen", "gemma", "mistral", "ministral", "phi", "deepseek", "gpt-oss", "glm", "smollm",
    "kimi", "minimax", "nemotron", "bert", "bge",
)  # fmt: skip
_ENCODER = "bert"
_DTYPE_LABELS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_QUANTISATION_SUFFIX = re.compile(
    r"[-_.](?:mlx|\d+bit|bf16|fp16|f16|fp32|f32|mxfp\d+|q\d\w*|gguf)$", re.IGNORECASE
)


def card_from_config(
    model_id: str,
    config: Mapping[str, Any],
    size_bytes: int,
    chat_template: str | None = None,
    *,
    embeds: bool = False,
) -> ModelCard:
    """The card of a model whose weights have this many bytes; `embeds`: it makes embeddings.

    Values of a `text_config` win over the top level. Raises BrokenModelError when the
    configuration does not say how large the model is.
    """
    inner = config.get("text_config")
    text = {**config, **inner} if isinstance(inner, dict) else dict(config)
    vision = _vision(model_id, config)
    embeds = embeds or config.get("model_type") == _ENCODER
    template = "" if embeds else chat_template or ""
    try:
        return ModelCard(
            model_id=check_model_id(model_id),
            storage_size=Memory.of(size_bytes),
            n_layers=_first(text, *_LAYER_KEYS),
            hidden_size=_first(text, "hidden_size", "n_embd"),
            supports_tensor=not embeds and _supports_tensor(config),
            num_key_value_heads=_key_heads(text),
            tasks=["TextEmbedding" if embeds else "TextGeneration"],
            family=_family(model_id, config),
            quantization=_quantization(text),
            base_model=base_model_name(model_id),
            capabilities=["embedding"] if embeds else _capabilities(template, vision),
            context_length=_whole(text, "max_position_embeddings") or 0,
            trust_remote_code=False,
            vision=vision,
            tooling=_tooling(template),
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BrokenModelError(f"config.json cannot be used: {where}: {first['msg']}") from error


def base_model_name(model_id: str) -> str:
    """The display name that all quantisations of a model share."""
    name = model_id.rpartition("/")[2]
    while (shorter := _QUANTISATION_SUFFIX.sub("", name)) != name:
        name = shorter
    return re.sub(r"[-_]+", " ", name)


def _first(config: Mapping[str, Any], *keys: str) -> Any:
    for key in keys:
        if config.get(key) is not None:
            return config[key]
    raise BrokenModelError(f"config.json cannot be used: {keys[0]} is missing")


def _supports_tensor(config: Mapping[str, Any]) -> bool:
    names = config.get("architectures")
    return isinstance(names, list) and len(names) == 1 and names[0] in _TENSOR_ARCHITECTURES


def _family(model_id: str, config: Mapping[str, Any]) -> str:
    short_id = model_id.rpartition("/")[2].lower()
    model_type = str(config.get("model_type", "")).lower().replace("_", "-")
    for text in (short_id, model_type):
        for family in _FAMILIES:
            if text.startswith(family):
                return family
    return ""


def _quantization(config: Mapping[str, Any]) -> str:
    section = config.get("quantization") or config.get("quantization_config")
    if isinstance(section, dict):
        mode, bits = section.get("mode", "affine"), section.get("bits")
        if mode != "affine":
            return str(mode).upper()
        if bits is not None:
            return f"{bits}bit"
        return str(section.get("quant_method", ""))
    dtype = config.get("torch_dtype") or config.get("dtype")
    return _DTYPE_LABELS.get(str(dtype), "")


def _capabilities(template: str, vision: VisionCardConfig | None) -> list[str]:
    found = {
        "text": True,
        "thinking": "<think>" in template,
        "thinking_toggle": "enable_thinking" in template,
        "vision": vision is not None,
    }
    return [name for name, present in found.items() if present]


def _tooling(template: str) -> ToolingCardConfig | None:
    if not re.search(r"\btools\b", template):
        return None
    return ToolingCardConfig(supports_tool_calling=True)


def _vision(model_id: str, config: Mapping[str, Any]) -> VisionCardConfig | None:
    token = config.get("image_token_id")
    if not isinstance(config.get("vision_config"), dict) or not isinstance(token, int):
        return None
    return VisionCardConfig(
        image_token_id=token,
        model_type=str(config.get("model_type", "")),
        weights_repo=model_id,
        boi_token_id=_whole(config, "boi_token_id"),
        eoi_token_id=_whole(config, "eoi_token_id"),
    )


def _key_heads(config: Mapping[str, Any]) -> int | None:
    """None when unknown, or when it differs from layer to layer."""
    if config.get("num_key_value_heads") is None:
        return _whole(config, "num_attention_heads")
    return _whole(config, "num_key_value_heads")


def _whole(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    return value if isinstance(value, int) else None


def card_of_config(directory: Path, model_id: str) -> ModelCard | None:
    """A card for a directory that may lack weights; None when there is no config.json.

    Blocking. Raises StoreError when the files lack what a card needs.
    """
    try:
        if not (directory / CONFIG_FILE).is_file():
            return None
        config = read_json_object(directory / CONFIG_FILE)
        size_bytes = _indexed_bytes(directory) or _weight_bytes(directory)
    except OSError as error:
        raise FileAccessError.of(error, directory) from error
    if size_bytes == 0:
        raise BrokenModelError(
            f"{directory} has a {CONFIG_FILE}, but neither weights nor a {INDEX_FILE}"
            " with their size"
        )
    embeds = (directory / MODULES_FILE).is_file()
    return card_from_config(model_id, config, size_bytes, embeds=embeds)


def _indexed_bytes(directory: Path) -> int:
    """The total size that the index states; 0 when it does not."""
    if not (directory / INDEX_FILE).is_file():
        return 0
    metadata: Any = read_json_object(directory / INDEX_FILE).get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return total if isinstance(total, int) and total > 0 else 0


def _weight_bytes(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.glob("*.safetensors"))

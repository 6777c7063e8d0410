"""Reading a model into memory, layer by layer, with reasons when it cannot be read."""

# mlx-lm leaves its loaders untyped.
# mypy: allow-untyped-calls

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx_lm.utils import load_model, load_tokenizer
from transformers import PreTrainedTokenizerBase

from skulkd.runner.cpu.panels import ROWS, arrange
from skulkd.runner.cpu.rope import share_rope_angles
from skulkd.runner.cpu.spread import spread
from skulkd.runner.cpu.widen import widen
from skulkd.runner.errors import BadModel
from skulkd.runner.group.group import RankGroup
from skulkd.runner.model.caches import can_batch
from skulkd.runner.model.files import check_model_directory, weight_files
from skulkd.runner.model.sharding import PipelinedModel, cut_into_slices
from skulkd.runner.output.text_stream import THINK_END, THINK_START
from skulkd.runner.output.tool_formats import ToolFormat, choose_format
from skulkd.runner.prompts.template_process import Renderer, TemplateJob, render_here
from skulkd.wire.cards import ModelCard

# What mlx-lm and the model files' own code raise for a configuration they cannot use.
_MODEL_ERRORS = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    IndexError,
    ArithmeticError,
    RuntimeError,
    OSError,
)


@dataclass(frozen=True, slots=True)
class ThinkMarkers:
    """How the model marks its reasoning. `end_tokens` is `end` as the tokenizer writes it."""

    start: str
    end: str
    end_tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ShardRange:
    """Which part of the model this rank keeps: all of it in a group of one."""

    group: RankGroup
    start_layer: int
    end_layer: int


@dataclass(frozen=True, slots=True)
class LoadedModel:
    model: Any
    tokenizer: Any
    card: ModelCard
    vocab_size: int
    max_context: int | None
    thinking: ThinkMarkers | None
    tool_format: ToolFormat
    cores: int
    layout: str


def load(
    directory: Path,
    card: ModelCard,
    *,
    part: ShardRange,
    trust_remote_code: bool,
    on_layer: Callable[[int, int], None],
    cores: int = 1,
    float32: bool = False,
    render: Renderer = render_here,
) -> LoadedModel:
    """`on_layer` is told how many layers of how many are in memory. Raises BadModel.

    `float32` unpacks weights; `render` runs the chat template that comes with the model.
    """
    check_model_directory(directory)
    _check_weights(directory)
    try:
        model, config = load_model(directory, lazy=True, trust_remote_code=trust_remote_code)
    except _MODEL_ERRORS as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise BadModel(
            f"{directory / 'config.json'} does not fit the weights or mlx-lm: {reason}"
        ) from error
    if not can_batch(model):
        raise BadModel(f"model type {config['model_type']} cannot decode requests together")
    if float32:
        widen(model)
    model = _shard(model, config, part)
    _materialise(model, directory, on_layer)
    # A stage keeps more than it needs of the rest, and must not read that into memory.
    here = model.computed if isinstance(model, PipelinedModel) else [model]
    layout = ROWS
    if mx.default_device() == mx.cpu:
        layout = arrange(here, cores)
        share_rope_angles(here)
    cores = spread(here, cores)
    pin_submodules(here)
    tokenizer = _load_tokenizer(directory, config, trust_remote_code=trust_remote_code)
    _route_template(tokenizer, render)
    text_config = {**config, **(config.get("text_config") or {})}
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        card=card,
        vocab_size=_positive(text_config.get("vocab_size")) or len(tokenizer),
        max_context=_positive(text_config.get("max_position_embeddings")),
        thinking=_think_markers(tokenizer, card),
        tool_format=choose_format(
            card,
            template=_template_text(tokenizer),
            begin=tokenizer.tool_call_start,
            end=tokenizer.tool_call_end,
            parse=tokenizer.tool_parser,
        ),
        cores=cores,
        layout=layout,
    )


def _shard(model: Any, config: dict[str, Any], part: ShardRange) -> Any:
    """This rank's part of the model."""
    mlx = part.group.mlx
    if mlx is None:
        return model
    if part.group.sharding == "tensor":
        cut_into_slices(model, config, mlx)
        return model
    try:
        return PipelinedModel(model, mlx, part.start_layer, part.end_layer)
    except BadModel as reason:
        raise BadModel(
            f"model type {config['model_type']} cannot be cut into a pipeline: {reason}"
        ) from reason


def _check_weights(directory: Path) -> None:
    """Reads the headers only, to name the file that is broken."""
    for path in weight_files(directory):
        try:
            mx.load(str(path))
        except RuntimeError as error:
            raise BadModel(f"{path} is cut off or no safetensors file: {error}") from error


def _materialise(model: Any, directory: Path, on_layer: Callable[[int, int], None]) -> None:
    layers = model.layers
    try:
        for number, layer in enumerate(layers, start=1):
            mx.eval(layer.parameters())
            on_layer(number, len(layers))
        if not isinstance(model, PipelinedModel):
            mx.eval(model.parameters())
    except RuntimeError as error:
        raise BadModel(f"the weights in {directory} cannot be read: {error}") from error


def pin_submodules(modules: Iterable[Module]) -> None:
    """Store the submodules of these modules as plain attributes too.

    MLX finds them by `__getattr__`, which Python calls only after looking everywhere else: a sixth
    of the Python time of a small model's step. Only for models that do not change any more.
    Weights are left alone, because models do replace arrays while they run.
    """
    for module in (inner for root in modules for inner in root.modules()):
        kind = type(module)
        vars(module).update(
            (name, part)
            for name, part in module.items()
            if isinstance(part, Module) and not hasattr(kind, name)
        )


def _load_tokenizer(directory: Path, config: dict[str, Any], *, trust_remote_code: bool) -> Any:
    extra = {"trust_remote_code": True} if trust_remote_code else {}
    try:
        return load_tokenizer(directory, extra, eos_token_ids=config.get("eos_token_id"))
    except (*_MODEL_ERRORS, ImportError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise BadModel(f"the tokenizer in {directory} cannot be used: {reason}") from error


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _route_template(tokenizer: Any, render: Renderer) -> None:
    """Render the model's own Jinja template through `render`; installed code stays as it is."""
    jinja = type(tokenizer._tokenizer).apply_chat_template
    if (
        tokenizer.chat_template is None
        or tokenizer._chat_template is not None
        or jinja is not PreTrainedTokenizerBase.apply_chat_template
    ):
        return

    def apply(
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        template = tokenizer.get_chat_template(tools=tools)
        variables = {**tokenizer.special_tokens_map, **variables}
        return render(TemplateJob(template, messages, tools, add_generation_prompt, variables))

    # mlx-lm's wrapper calls this in place of the tokenizer's method, with its variables set.
    tokenizer._chat_template = apply


def _template_text(tokenizer: Any) -> str:
    template = getattr(tokenizer, "chat_template", None)
    return template if isinstance(template, str) else ""


def _think_markers(tokenizer: Any, card: ModelCard) -> ThinkMarkers | None:
    wanted = card.reasoning.format if card.reasoning else None
    if wanted == "none":
        return None
    if tokenizer.has_thinking:
        return ThinkMarkers(
            tokenizer.think_start, tokenizer.think_end, tuple(tokenizer.think_end_tokens)
        )
    if wanted == "token_delimited" or THINK_START in _template_text(tokenizer):
        tokens = tokenizer.encode(THINK_END, add_special_tokens=False)
        return ThinkMarkers(THINK_START, THINK_END, tuple(tokens))
    return None

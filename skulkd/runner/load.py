"""Reading a model into memory, layer by layer, with reasons when it cannot be read."""

# mlx-lm leaves its loaders untyped.
# mypy: allow-untyped-calls

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.utils import load_model, load_tokenizer
from transformers import PreTrainedTokenizerBase

from skulkd.runner.caches import can_batch
from skulkd.runner.group import Group, RankGroup
from skulkd.runner.model_files import BadModel, check_model_directory, weight_files
from skulkd.runner.panels import ROWS, arrange
from skulkd.runner.pipeline import PipelinedModel
from skulkd.runner.reasoning import THINK_END, THINK_START
from skulkd.runner.rope import quicken_rope
from skulkd.runner.seats import Alone, Seat, Slice, Stage
from skulkd.runner.shortcuts import pin_parts
from skulkd.runner.spread import spread
from skulkd.runner.template_process import Renderer, TemplateJob, render_here
from skulkd.runner.tensor import cut_into_slices
from skulkd.runner.tools.calls import ToolFormat
from skulkd.runner.tools.choose import choose_format
from skulkd.runner.widen import widen
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
class Part:
    """Which part of the model this rank keeps: all of it in a group of one."""

    group: Group
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
    seat: Seat
    cores: int
    layout: str


def load(
    directory: Path,
    card: ModelCard,
    *,
    part: Part,
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
    model, seat = _cut(model, config, part)
    _materialise(model, directory, on_layer)
    # A stage keeps more than it needs of the rest, and must not read that into memory.
    here = model.computed if isinstance(model, PipelinedModel) else [model]
    layout = ROWS
    if mx.default_device() == mx.cpu:
        layout = arrange(here, cores)
        quicken_rope(here)
    cores = spread(here, cores)
    pin_parts(here)
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
        seat=seat,
        cores=cores,
        layout=layout,
    )


def _cut(model: Any, config: dict[str, Any], part: Part) -> tuple[Any, Seat]:
    """This rank's part of the model, and what it does with it."""
    group = part.group
    if not isinstance(group, RankGroup):
        return model, Alone(model)
    if group.sharding == "tensor":
        cut_into_slices(model, config, group.raw)
        return model, Slice(model, group.raw)
    try:
        stage = PipelinedModel(model, group.raw, part.start_layer, part.end_layer)
    except BadModel as reason:
        raise BadModel(
            f"model type {config['model_type']} cannot be cut into a pipeline: {reason}"
        ) from reason
    return stage, Stage(stage, group.raw)


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

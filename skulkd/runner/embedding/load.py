"""Reading an embedding model into memory: BERT's encoder, or a decoder through mlx-lm."""

# MLX leaves its modules untyped.
# mypy: allow-untyped-calls

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from skulkd.runner.cpu.panels import ROWS
from skulkd.runner.cpu.spread import spread
from skulkd.runner.embedding.bert import Bert, BertConfig, weights_of
from skulkd.runner.embedding.pooling import Pooling, max_sequence, read_pooling
from skulkd.runner.embedding.tokens import InputTokenizer
from skulkd.runner.errors import BadModel
from skulkd.runner.model.files import check_model_directory, read_config, weight_files
from skulkd.runner.model.load import LoadedModel, pin_submodules
from skulkd.wire.cards import ModelCard

_BERT = "bert"
_BERT_DEFAULT = Pooling(("mean",), normalize=True)
# The token that has seen the whole text; right of it there is only padding.
_DECODER_DEFAULT = Pooling(("lasttoken",), normalize=True)
_LONGEST = 8192

Forward = Callable[[mx.array, mx.array], mx.array]
"""Hidden states from padded tokens and their mask."""


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    forward: Forward
    tokenizer: InputTokenizer
    pooling: Pooling
    card: ModelCard
    cores: int
    layout: str


def is_encoder(directory: Path) -> bool:
    """Raises BadModel."""
    return read_config(directory).get("model_type") == _BERT


def load_encoder(
    directory: Path,
    card: ModelCard,
    *,
    context_limit: int | None,
    cores: int,
    on_layer: Callable[[int, int], None],
) -> EmbeddingModel:
    """`on_layer` is told how many layers of how many are in memory. Raises BadModel."""
    check_model_directory(directory)
    config = BertConfig.of(read_config(directory))
    model = Bert(config)
    try:
        stored: dict[str, Any] = {}
        for path in weight_files(directory):
            stored.update(mx.load(str(path)))  # type: ignore[arg-type]
        model.load_weights(list(weights_of(stored).items()))
        for number, layer in enumerate(model.layers, start=1):
            mx.eval(layer.parameters())
            on_layer(number, len(model.layers))
        mx.eval(model.parameters())
    except (RuntimeError, ValueError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise BadModel(f"the weights in {directory} do not fit config.json: {reason}") from error
    used = spread([model], cores) if mx.default_device() == mx.cpu else 1
    pin_submodules([model])
    limit = _limit(directory, config.max_position_embeddings, context_limit)
    return EmbeddingModel(
        forward=model,
        tokenizer=InputTokenizer.read(directory, limit, config.vocab_size),
        pooling=read_pooling(directory, _BERT_DEFAULT),
        card=card,
        cores=used,
        layout=ROWS,
    )


def from_decoder(directory: Path, loaded: LoadedModel, context_limit: int | None) -> EmbeddingModel:
    """The decoder without its head. Raises BadModel."""
    inner: Any = getattr(loaded.model, "model", None)
    if inner is None:
        raise BadModel(f"{directory}: this kind of decoder has no hidden states to embed with")

    def forward(tokens: mx.array, _mask: mx.array) -> mx.array:
        # Causal attention: no token sees the padding to its right.
        hidden: mx.array = inner(tokens)
        return hidden.astype(mx.float32)

    limit = _limit(directory, loaded.max_context, context_limit)
    return EmbeddingModel(
        forward=forward,
        tokenizer=InputTokenizer.read(directory, limit, loaded.vocab_size),
        pooling=read_pooling(directory, _DECODER_DEFAULT),
        card=loaded.card,
        cores=loaded.cores,
        layout=loaded.layout,
    )


def _limit(directory: Path, positions: int | None, context_limit: int | None) -> int:
    limits = (max_sequence(directory), positions, context_limit, _LONGEST)
    return min(limit for limit in limits if limit is not None)

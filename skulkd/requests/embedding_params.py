"""Parameters of embedding requests, their limits, and which models serve them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from skulkd.placement.memory import embeds_only
from skulkd.requests.errors import RequestError
from skulkd.requests.generation_params import GenerationParams
from skulkd.runner.protocol import GenerationOptions
from skulkd.wire.cards import ModelCard
from skulkd.wire.tasks import TextEmbeddingTaskParams

MAX_INPUTS = 2048
MATRYOSHKA = "matryoshka"
"""Capability of a card: the first numbers of a vector are a good vector of their own."""

EmbeddingInput = str | list[str] | list[int] | list[list[int]]


@dataclass(frozen=True, slots=True)
class EmbeddingParams:
    """As `GenerationParams`; there are no options."""

    task: TextEmbeddingTaskParams
    options: GenerationOptions = field(default_factory=GenerationOptions)
    keep_alive_s: float | None = None

    @property
    def model(self) -> str:
        return self.task.model


RequestParams = GenerationParams | EmbeddingParams


def check_generates(card: ModelCard) -> None:
    """Raises RequestError for a model that only makes embeddings."""
    if embeds_only(card):
        message = (
            f"Model {card.model_id} is an embedding model and generates no text;"
            " use POST /v1/embeddings"
        )
        raise RequestError("invalid_request", message)


def embedding_params(
    card: ModelCard,
    inputs: Sequence[str | list[int]],
    *,
    dimensions: int | None = None,
    truncate: bool = False,
    keep_alive_s: float | None = None,
) -> EmbeddingParams:
    """Raises RequestError."""
    if "TextEmbedding" not in card.tasks:
        raise RequestError("invalid_request", f"Model {card.model_id} is not an embedding model")
    if len(inputs) > MAX_INPUTS:
        message = f"input has {len(inputs)} items, the limit is {MAX_INPUTS}; send several requests"
        raise RequestError("invalid_request", message)
    _check_dimensions(card, dimensions)
    task = TextEmbeddingTaskParams(
        model=card.model_id, input=list(inputs), dimensions=dimensions, truncate=truncate
    )
    return EmbeddingParams(task, keep_alive_s=keep_alive_s)


def input_list(given: EmbeddingInput) -> list[str | list[int]]:
    """Every input by itself. Raises RequestError when there is none, or an empty one."""
    if isinstance(given, str):
        inputs: list[str | list[int]] = [given]
    elif given and isinstance(given[0], int):
        inputs = [[token for token in given if isinstance(token, int)]]
    else:
        inputs = [one for one in given if not isinstance(one, int)]
    if not inputs:
        raise RequestError("invalid_request", "input must not be empty")
    for index, one in enumerate(inputs):
        if not one:
            where = "input" if isinstance(given, str) else f"input[{index}]"
            raise RequestError("invalid_request", f"{where} must not be empty")
    return inputs


def _check_dimensions(card: ModelCard, dimensions: int | None) -> None:
    if dimensions is None:
        return
    if MATRYOSHKA not in card.capabilities:
        message = (
            f"dimensions is not supported by {card.model_id};"
            f" leave it out to get vectors of {card.hidden_size}"
        )
        raise RequestError("invalid_request", message)
    if not 1 <= dimensions <= card.hidden_size:
        message = f"dimensions must be between 1 and {card.hidden_size}, not {dimensions}"
        raise RequestError("invalid_request", message)

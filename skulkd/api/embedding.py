"""Answering an embedding request, for every API family that has one."""

from __future__ import annotations

import sys
from array import array
from base64 import b64decode
from collections.abc import Sequence

from aiohttp import web

from skulkd.api.generation import collect_output
from skulkd.api.services import services
from skulkd.requests.embedding_params import embedding_params
from skulkd.requests.errors import RequestError
from skulkd.requests.open_request import OpenRequest
from skulkd.requests.selection import card_of
from skulkd.runner.protocol import Output
from skulkd.wire.cards import ModelCard


class EmbeddingAnswer:
    """Collects output with `add`. `vectors` are base64 of little-endian float32, in order."""

    def __init__(self, count: int) -> None:
        self.vectors = [""] * count
        self.prompt_tokens = 0

    def add(self, output: Output) -> None:
        for item in output.embeddings:
            self.vectors[item.index] = item.vector
        if output.usage is not None:
            self.prompt_tokens = output.usage.prompt_tokens


async def placed_card(
    request: web.Request, model: str, keep_alive_s: float | None = None
) -> ModelCard:
    """The card of a model, which is placed first where requests may do so. Raises RequestError."""
    dispatcher = services(request).requests.dispatcher
    return card_of((await dispatcher.ensure_placed(model, keep_alive_s))[0])


async def embed(
    request: web.Request,
    card: ModelCard,
    inputs: Sequence[str | list[int]],
    *,
    dimensions: int | None = None,
    truncate: bool = False,
    keep_alive_s: float | None = None,
) -> tuple[OpenRequest, EmbeddingAnswer]:
    """One vector for each input. Raises RequestError."""
    params = embedding_params(
        card, inputs, dimensions=dimensions, truncate=truncate, keep_alive_s=keep_alive_s
    )
    answer = EmbeddingAnswer(len(inputs))
    try:
        opened = await collect_output(request, params, answer.add)
    except RequestError as error:
        if error.code == "failed":
            raise RequestError(
                "failed", f"Embedding failed: {error}", retry_after_s=error.retry_after_s
            ) from error
        raise
    if not all(answer.vectors):
        raise RequestError("failed", "Embedding failed: the request was cancelled")
    return opened, answer


def floats(vector: str) -> list[float]:
    """The numbers of a vector."""
    numbers = array("f", b64decode(vector))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()

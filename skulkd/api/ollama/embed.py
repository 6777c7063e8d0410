"""`POST /api/embed` and `POST /api/embeddings`."""

from __future__ import annotations

from aiohttp import web

from skulkd.api.embedding import embed, floats, placed_card
from skulkd.api.ollama.errors import error_response
from skulkd.api.ollama.frames import figures_of
from skulkd.api.ollama.generate import ERRORS
from skulkd.api.ollama.translate import keep_alive, model_id
from skulkd.api.routes import RouteTable
from skulkd.api.streams import send
from skulkd.requests.embedding_params import embedding_params
from skulkd.requests.open_request import OpenRequest
from skulkd.wire.ollama import (
    OllamaEmbeddingsRequest,
    OllamaEmbeddingsResponse,
    OllamaEmbedRequest,
    OllamaEmbedResponse,
)

routes = RouteTable("ollama")


@routes.post(
    "/api/embed",
    aliases=("/ollama/api/embed",),
    scope="infer",
    summary="Turn texts into vectors, for Ollama clients",
    body=OllamaEmbedRequest,
    answer=OllamaEmbedResponse,
    other_answers=ERRORS,
    any_content_type=True,
    error_format=error_response,
)
async def post_ollama_embed(request: web.Request, body: OllamaEmbedRequest) -> web.StreamResponse:
    """Without an input it only says that the model is loaded, as Ollama does."""
    keep_s = keep_alive(body.keep_alive)
    card = await placed_card(request, model_id(body.model), keep_s)
    inputs = [body.input] if isinstance(body.input, str) else body.input
    if inputs in ([], [""]):
        embedding_params(card, [])
        opened, vectors, tokens = OpenRequest(), [], 0
    else:
        truncate = body.truncate is not False
        opened, answer = await embed(
            request,
            card,
            list(inputs),
            dimensions=body.dimensions,
            truncate=truncate,
            keep_alive_s=keep_s,
        )
        vectors, tokens = [floats(vector) for vector in answer.vectors], answer.prompt_tokens
    figures = figures_of(opened, None, None, None)
    whole = OllamaEmbedResponse(
        model=body.model,
        embeddings=vectors,
        total_duration=figures.total_duration or 0,
        load_duration=figures.load_duration or 0,
        prompt_eval_count=tokens,
    )
    return await send(request, whole.model_dump_json().encode())


@routes.post(
    "/api/embeddings",
    aliases=("/ollama/api/embeddings",),
    scope="infer",
    summary="Turn one text into a vector, for older Ollama clients",
    body=OllamaEmbeddingsRequest,
    answer=OllamaEmbeddingsResponse,
    other_answers=ERRORS,
    any_content_type=True,
    error_format=error_response,
)
async def post_ollama_embeddings(
    request: web.Request, body: OllamaEmbeddingsRequest
) -> web.StreamResponse:
    keep_s = keep_alive(body.keep_alive)
    card = await placed_card(request, model_id(body.model), keep_s)
    if not body.prompt:
        embedding_params(card, [])
        return await send(
            request, OllamaEmbeddingsResponse(embedding=[]).model_dump_json().encode()
        )
    _, answer = await embed(request, card, [body.prompt], truncate=True, keep_alive_s=keep_s)
    whole = OllamaEmbeddingsResponse(embedding=floats(answer.vectors[0]))
    return await send(request, whole.model_dump_json().encode())

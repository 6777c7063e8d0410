"""`POST /v1/embeddings`."""

from __future__ import annotations

from aiohttp import web

from skulkd.api.embedding import embed, floats, placed_card
from skulkd.api.generation import GENERATION_ERRORS
from skulkd.api.routes import RouteTable
from skulkd.api.streams import send
from skulkd.requests.embedding_params import input_list
from skulkd.wire.embeddings import (
    EmbeddingObject,
    EmbeddingRequest,
    EmbeddingResponse,
    EmbeddingUsage,
)

routes = RouteTable("embeddings")


@routes.post(
    "/v1/embeddings",
    scope="infer",
    summary="Turn texts into vectors",
    body=EmbeddingRequest,
    answer=EmbeddingResponse,
    errors=GENERATION_ERRORS,
)
async def post_embeddings(request: web.Request, body: EmbeddingRequest) -> web.StreamResponse:
    card = await placed_card(request, body.model)
    _, answer = await embed(request, card, input_list(body.input), dimensions=body.dimensions)
    encoded = body.encoding_format == "base64"
    whole = EmbeddingResponse(
        data=[
            EmbeddingObject(index=index, embedding=vector if encoded else floats(vector))
            for index, vector in enumerate(answer.vectors)
        ],
        model=body.model,
        usage=EmbeddingUsage(prompt_tokens=answer.prompt_tokens, total_tokens=answer.prompt_tokens),
    )
    return await send(request, whole.model_dump_json().encode())

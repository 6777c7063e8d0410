"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time

from aiohttp import web

from skulkd.api.chat_chunks import ChatChunks
from skulkd.api.chat_request import read_chat, wanted_tokens
from skulkd.api.dispatch import card_of
from skulkd.api.generation import Streamed, answer_streamed, answer_whole
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.api.streams import send
from skulkd.api.wanted import Wanted, check_budget
from skulkd.api.whole_answer import chat_response
from skulkd.store.catalogue import resolve_capabilities
from skulkd.wire.chat import ChatCompletionRequest, ChatCompletionResponse

routes = RouteTable("chat")
GENERATION_ERRORS = (400, 404, 413, 429, 500, 503)


@routes.post(
    "/v1/chat/completions",
    scope="infer",
    summary="Answer a conversation; with `stream` as server-sent events",
    body=ChatCompletionRequest,
    answer=ChatCompletionResponse,
    errors=GENERATION_ERRORS,
)
async def post_chat_completions(
    request: web.Request, body: ChatCompletionRequest
) -> web.StreamResponse:
    wanted = prepare_chat(services(request), body)
    created = int(time.time())
    if body.stream:
        options = body.stream_options
        streamed = Streamed(
            chunks=lambda command_id: ChatChunks(command_id, body.model, created),
            include_usage=options is not None and options.include_usage,
        )
        return await answer_streamed(request, wanted, streamed)
    command_id, answer = await answer_whole(request, wanted)
    logprobs = wanted.params.logprobs
    whole = chat_response(answer, command_id, body.model, created, logprobs=logprobs)
    return await send(request, whole.model_dump_json().encode())


def prepare_chat(node: Services, body: ChatCompletionRequest, *, bench: bool = False) -> Wanted:
    """The checks before anything is done for a request. Raises ApiError."""
    instances = node.inference.dispatcher.instances_of(body.model)
    wanted = read_chat(body, resolve_capabilities(card_of(instances[0])), bench=bench)
    check_budget(wanted_tokens(body), [instance.context_token_limit for instance in instances])
    return wanted

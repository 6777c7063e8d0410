"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time

from aiohttp import web

from skulkd.api.chat_chunks import ChatChunks, chat_response
from skulkd.api.generation import (
    GENERATION_ERRORS,
    StreamFormat,
    answer_streamed,
    answer_whole,
    prepare_chat,
)
from skulkd.api.openai_stream import OpenAiFrames
from skulkd.api.routes import RouteTable
from skulkd.api.services import services
from skulkd.api.streams import send
from skulkd.requests.open_request import OpenRequest
from skulkd.wire.chat import ChatCompletionRequest, ChatCompletionResponse

routes = RouteTable("chat")


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
    params = await prepare_chat(services(request), body)
    if body.stream:
        return await answer_streamed(request, params, StreamFormat(lambda o: _frames(o, body)))
    opened, answer = await answer_whole(request, params)
    created = int(time.time())
    logprobs = params.task.logprobs
    whole = chat_response(answer, opened.command_id, body.model, created, logprobs=logprobs)
    return await send(request, whole.model_dump_json().encode())


def _frames(opened: OpenRequest, body: ChatCompletionRequest) -> OpenAiFrames:
    options = body.stream_options
    return OpenAiFrames(
        opened.command_id,
        body.model,
        ChatChunks(opened.command_id, body.model, int(time.time())),
        include_usage=options is not None and options.include_usage,
    )

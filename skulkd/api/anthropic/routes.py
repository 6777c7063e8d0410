"""`POST /v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

from aiohttp import web

from skulkd.api.anthropic.errors import REQUEST_ID_HEADER, error_response
from skulkd.api.anthropic.frames import PING, MessageFrames, messages_response
from skulkd.api.anthropic.translate import FIELD_NAMES, chat_request, counted_request
from skulkd.api.generation import (
    GENERATION_ERRORS,
    StreamFormat,
    answer_streamed,
    answer_whole,
    prepare_chat,
)
from skulkd.api.routes import RouteTable
from skulkd.api.services import services
from skulkd.api.sse import HEADERS
from skulkd.api.streams import send
from skulkd.log import REQUEST_ID
from skulkd.wire.anthropic import (
    AnthropicError,
    CountTokensRequest,
    CountTokensResponse,
    MessagesRequest,
    MessagesResponse,
)

routes = RouteTable("anthropic")
_ERRORS = tuple((status, AnthropicError) for status in (401, 403, *GENERATION_ERRORS))


@routes.post(
    "/v1/messages",
    scope="infer",
    summary="Answer a conversation for Anthropic clients; with `stream` as events",
    body=MessagesRequest,
    answer=MessagesResponse,
    other_answers=_ERRORS,
    error_format=error_response,
)
async def post_messages(request: web.Request, body: MessagesRequest) -> web.StreamResponse:
    params = await prepare_chat(services(request), chat_request(body), names=FIELD_NAMES)
    if body.stream:
        stream_format = StreamFormat(
            frames=lambda opened: MessageFrames(opened.command_id, body.model),
            headers={**HEADERS, **_request_id()},
            keep_alive=PING,
        )
        return await answer_streamed(request, params, stream_format)
    opened, answer = await answer_whole(request, params)
    whole = messages_response(answer, opened.command_id, body.model)
    return await send(request, whole.model_dump_json().encode(), headers=_request_id())


@routes.post(
    "/v1/messages/count_tokens",
    scope="infer",
    summary="Count the tokens of a Messages request; the model reads it once",
    body=CountTokensRequest,
    answer=CountTokensResponse,
    other_answers=_ERRORS,
    error_format=error_response,
)
async def post_count_tokens(request: web.Request, body: CountTokensRequest) -> web.StreamResponse:
    # Only the runner has the tokenizer and the template. What it reads stays in the prefix cache.
    counted = counted_request(body).model_copy(update={"max_tokens": 1, "tool_choice": None})
    params = await prepare_chat(services(request), counted, names=FIELD_NAMES)
    _, answer = await answer_whole(request, params)
    tokens = 0 if answer.usage is None else answer.usage.prompt_tokens
    whole = CountTokensResponse(input_tokens=tokens)
    return await send(request, whole.model_dump_json().encode(), headers=_request_id())


def _request_id() -> dict[str, str]:
    return {REQUEST_ID_HEADER: REQUEST_ID.get() or ""}

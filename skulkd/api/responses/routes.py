"""`/v1/responses`: create, read, delete and cancel a response."""

from __future__ import annotations

import time
from collections.abc import Sequence

from aiohttp import web

from skulkd.api.callers import CALLER
from skulkd.api.errors import ApiError, OpenAiNotFound
from skulkd.api.generation import (
    GENERATION_ERRORS,
    StreamFormat,
    answer_streamed,
    answer_whole,
    prepare_chat,
)
from skulkd.api.responses.bodies import PREFIX, finished, new_response, whole_output
from skulkd.api.responses.frames import ResponseFrames
from skulkd.api.responses.translate import (
    FIELD_NAMES,
    chat_request,
    input_messages,
    output_messages,
)
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.api.streams import send
from skulkd.requests.open_request import OpenRequest
from skulkd.requests.response_store import StoredResponse
from skulkd.wire.chat import ChatCompletionMessage
from skulkd.wire.errors import ErrorEnvelope, OpenAiErrorEnvelope
from skulkd.wire.ids import TokenId
from skulkd.wire.responses import ResponseCreateParams, ResponseDeleted, ResponseObject

routes = RouteTable("responses")
_NOT_FOUND = ((404, OpenAiErrorEnvelope),)


@routes.post(
    "/v1/responses",
    scope="infer",
    summary="Generate a response (OpenAI's Responses API); with `stream` as events",
    body=ResponseCreateParams,
    answer=ResponseObject,
    errors=GENERATION_ERRORS,
    other_answers=((404, ErrorEnvelope | OpenAiErrorEnvelope),),
)
async def post_responses(request: web.Request, body: ResponseCreateParams) -> web.StreamResponse:
    node = services(request)
    messages = [*_previous(node, body), *input_messages(body.input)]
    params = await prepare_chat(node, chat_request(body, messages), names=FIELD_NAMES)
    if body.stream:
        stream_format = StreamFormat(lambda opened: _frames(node, opened, body, messages))
        return await answer_streamed(request, params, stream_format)
    opened, answer = await answer_whole(request, params)
    begun = new_response(body, opened.command_id, int(time.time()))
    output = whole_output(answer, opened.command_id)
    response = finished(begun, output, answer.choices[0].finish_reason, answer.usage)
    _keep(node, response, messages, opened.owner)
    return await send(request, _json(response))


@routes.get(
    "/v1/responses/{response_id}",
    scope="infer",
    summary="A response that this node gave; it keeps a limited number",
    answer=ResponseObject,
    other_answers=_NOT_FOUND,
)
async def get_response(request: web.Request) -> web.StreamResponse:
    return await send(request, _json(_find(request).response))


@routes.delete(
    "/v1/responses/{response_id}",
    scope="infer",
    summary="Forget a response",
    answer=ResponseDeleted,
    other_answers=_NOT_FOUND,
)
async def delete_response(request: web.Request) -> web.StreamResponse:
    response_id = _find(request).response.id
    services(request).responses.delete(response_id, _owner())
    return await send(request, ResponseDeleted(id=response_id).model_dump_json().encode())


@routes.post(
    "/v1/responses/{response_id}/cancel",
    scope="infer",
    summary="End a response that this node is giving",
    answer=ResponseObject,
    other_answers=_NOT_FOUND,
    errors=(400,),
    counted=False,
    cancels=True,
)
async def post_cancel_response(request: web.Request) -> web.StreamResponse:
    response = _find(request).response
    command_id = response.id.removeprefix(PREFIX)
    if not await services(request).requests.cancel(command_id, _owner()):
        text = f"Cannot cancel response '{response.id}': its status is {response.status}"
        raise ApiError(400, text)
    return await send(request, _json(response.model_copy(update={"status": "cancelled"})))


def _frames(
    node: Services,
    opened: OpenRequest,
    body: ResponseCreateParams,
    messages: Sequence[ChatCompletionMessage],
) -> ResponseFrames:
    begun = new_response(body, opened.command_id, int(time.time()))
    frames = ResponseFrames(
        opened.command_id, begun, lambda response: _keep(node, response, messages, opened.owner)
    )
    opened.on_close(frames.closed)
    return frames


def _previous(node: Services, body: ResponseCreateParams) -> Sequence[ChatCompletionMessage]:
    """Raises OpenAiNotFound."""
    response_id = body.previous_response_id
    if response_id is None:
        return ()
    if (stored := node.responses.get(response_id, _owner())) is None:
        raise OpenAiNotFound(
            f"Previous response with id '{response_id[:200]}' not found.",
            "previous_response_not_found",
            param="previous_response_id",
        )
    return stored.messages


def _find(request: web.Request) -> StoredResponse:
    """Raises OpenAiNotFound."""
    response_id = request.match_info["response_id"]
    stored = services(request).responses.get(response_id, _owner())
    if stored is None:
        message = f"Response with id '{response_id[:200]}' not found."
        raise OpenAiNotFound(message, "response_not_found")
    return stored


def _keep(
    node: Services,
    response: ResponseObject,
    messages: Sequence[ChatCompletionMessage],
    owner: TokenId | None,
) -> None:
    if response.store:
        said = [*messages, *output_messages(response.output)]
        node.responses.put(StoredResponse(response, said, owner))


def _owner() -> TokenId | None:
    token = CALLER.get().token
    return None if token is None else token.token_id


def _json(response: ResponseObject) -> bytes:
    return response.model_dump_json(by_alias=True).encode()

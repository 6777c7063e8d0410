"""`POST /api/chat` and `POST /api/generate`."""

from __future__ import annotations

from dataclasses import replace

from aiohttp import web

from skulkd.api import sse
from skulkd.api.client_gone import ends_with_client
from skulkd.api.generation import (
    GENERATION_ERRORS,
    StreamFormat,
    answer_streamed,
    answer_whole,
    prepare_chat,
)
from skulkd.api.ollama.errors import error_response
from skulkd.api.ollama.frames import OllamaFrames
from skulkd.api.ollama.translate import (
    FIELD_NAMES,
    chat_request,
    generate_request,
    keep_alive,
    model_id,
)
from skulkd.api.placement_errors import placement_error
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.api.streams import send
from skulkd.placement.records import record_of
from skulkd.placement.refusals import Refusal
from skulkd.requests.errors import RequestError
from skulkd.requests.generation_params import GenerationParams
from skulkd.requests.open_request import OpenRequest
from skulkd.wire.chat import ChatCompletionRequest
from skulkd.wire.ollama import (
    OllamaChatRequest,
    OllamaChatResponse,
    OllamaError,
    OllamaGenerateRequest,
    OllamaGenerateResponse,
    OllamaRequest,
)

routes = RouteTable("ollama")
NDJSON = "application/x-ndjson"
HEADERS = {**sse.HEADERS, "Content-Type": NDJSON}
ERRORS = tuple((status, OllamaError) for status in (401, 403, *GENERATION_ERRORS))


@routes.post(
    "/api/chat",
    aliases=("/ollama/api/chat", "/ollama/api/api/chat", "/ollama/api/v1/chat"),
    scope="infer",
    summary="Answer a conversation for Ollama clients, by default in lines",
    body=OllamaChatRequest,
    answer=OllamaChatResponse,
    other_answers=ERRORS,
    any_content_type=True,
    error_format=error_response,
    files=(NDJSON,),
)
async def post_ollama_chat(request: web.Request, body: OllamaChatRequest) -> web.StreamResponse:
    if not body.messages:
        return await _loaded(request, body, chat=True)
    params = await _prepare(request, body, chat_request(body))
    return await _answer(request, body, params, chat=True)


@routes.post(
    "/api/generate",
    aliases=("/ollama/api/generate",),
    scope="infer",
    summary="Answer a prompt for Ollama clients, by default in lines",
    body=OllamaGenerateRequest,
    answer=OllamaGenerateResponse,
    other_answers=ERRORS,
    any_content_type=True,
    error_format=error_response,
    files=(NDJSON,),
)
async def post_ollama_generate(
    request: web.Request, body: OllamaGenerateRequest
) -> web.StreamResponse:
    if not body.prompt:
        return await _loaded(request, body, chat=False)
    params = await _prepare(request, body, generate_request(body))
    if body.raw:
        params = replace(params, options=params.options.model_copy(update={"prompt": body.prompt}))
    return await _answer(request, body, params, chat=False)


async def _prepare(
    request: web.Request, body: OllamaRequest, chat: ChatCompletionRequest
) -> GenerationParams:
    keep_s = keep_alive(body.keep_alive)
    return await prepare_chat(services(request), chat, keep_alive_s=keep_s, names=FIELD_NAMES)


async def _answer(
    request: web.Request, body: OllamaRequest, params: GenerationParams, *, chat: bool
) -> web.StreamResponse:
    if body.stream:
        stream_format = StreamFormat(
            frames=lambda opened: OllamaFrames(opened, body.model, chat=chat),
            headers=HEADERS,
            # Every line has to be a part of the answer.
            keep_alive=None,
        )
        return await answer_streamed(request, params, stream_format)
    opened, answer = await answer_whole(request, params)
    return await send(request, OllamaFrames(opened, body.model, chat=chat).whole(answer).encode())


async def _loaded(request: web.Request, body: OllamaRequest, *, chat: bool) -> web.StreamResponse:
    """Without a prompt Ollama loads a model, or unloads it."""
    node, model, keep_s = services(request), model_id(body.model), keep_alive(body.keep_alive)
    frames = OllamaFrames(OpenRequest(), body.model, chat=chat)
    if keep_s == 0:
        await _unload(node, model)
        return await send(request, frames.without_answer("unload").encode())
    dispatcher = node.requests.dispatcher
    with ends_with_client(request):
        instances = await dispatcher.ensure_placed(model, keep_s)
        await dispatcher.wait_until_ready(model)
    if keep_s is not None:
        for instance in instances:
            node.unloads.keep(instance, keep_s)
    return await send(request, frames.without_answer("load").encode())


async def _unload(node: Services, model: str) -> None:
    """Raises RequestError."""
    instances = node.requests.dispatcher.instances_of(model)
    kept = [one.instance_id for one in instances if record_of(one).on_demand is None]
    if kept:
        text = f"an operator placed {model[:200]}, so keep_alive does not unload it"
        text += f"; run: skulkctl delete {kept[0]}"
        raise RequestError("invalid_request", text)
    for instance in instances:
        try:
            await node.unloads.unload_when_idle(instance)
        except Refusal as refusal:
            raise placement_error(refusal) from refusal

"""`POST /v1/completions`: raw text goes on, without a chat template."""

from __future__ import annotations

import time
from collections.abc import Sequence

from aiohttp import web

from skulkd.api.generation import (
    GENERATION_ERRORS,
    StreamFormat,
    answer_streamed,
    answer_whole,
)
from skulkd.api.openai_stream import OpenAiFrames
from skulkd.api.routes import RouteTable
from skulkd.api.services import services
from skulkd.api.sse import data
from skulkd.api.streams import send
from skulkd.requests.answer import GeneratedAnswer
from skulkd.requests.embedding_params import check_generates
from skulkd.requests.errors import RequestError
from skulkd.requests.generation_params import (
    GenerationParams,
    check_budget,
    check_ranges,
    logit_bias,
    stop_strings,
)
from skulkd.requests.open_request import OpenRequest
from skulkd.requests.selection import card_of
from skulkd.runner.protocol import GenerationOptions, OutputItem
from skulkd.wire.chat import LogprobsContentItem, Usage
from skulkd.wire.completions import (
    CompletionChoice,
    CompletionLogprobs,
    CompletionRequest,
    CompletionResponse,
)
from skulkd.wire.ids import ModelId
from skulkd.wire.tasks import InputMessage, TextGenerationTaskParams

routes = RouteTable("chat")
# What OpenAI's clients expect when they name no length.
DEFAULT_MAX_TOKENS = 16


@routes.post(
    "/v1/completions",
    scope="infer",
    summary="Continue a text; with `stream` as server-sent events",
    body=CompletionRequest,
    answer=CompletionResponse,
    errors=GENERATION_ERRORS,
)
async def post_completions(request: web.Request, body: CompletionRequest) -> web.StreamResponse:
    params = completion_params(body)
    instances = await services(request).requests.dispatcher.ensure_placed(body.model)
    check_generates(card_of(instances[0]))
    limits = [instance.context_token_limit for instance in instances]
    check_budget(params.task.max_output_tokens, limits)
    echoed = params.options.prompt or "" if body.echo else ""
    if body.stream:
        stream_format = StreamFormat(lambda opened: _frames(opened, body, echoed))
        return await answer_streamed(request, params, stream_format)
    opened, answer = await answer_whole(request, params)
    whole = CompletionResponse(
        id=opened.command_id,
        created=int(time.time()),
        model=body.model,
        choices=_choices(answer, echoed, logprobs=params.task.logprobs),
        usage=answer.usage,
    )
    return await send(request, whole.model_dump_json().encode())


def _frames(opened: OpenRequest, body: CompletionRequest, echoed: str) -> OpenAiFrames:
    options = body.stream_options
    return OpenAiFrames(
        opened.command_id,
        body.model,
        CompletionChunks(opened.command_id, body.model, int(time.time()), echoed),
        include_usage=options is not None and options.include_usage,
    )


def completion_params(body: CompletionRequest) -> GenerationParams:
    """Raises RequestError."""
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    if len(prompts) != 1 or not prompts[0]:
        raise RequestError("invalid_request", "prompt must be one text that is not empty")
    check_ranges(
        {
            "temperature": body.temperature,
            "top_p": body.top_p,
            "min_p": body.min_p,
            "repetition_penalty": body.repetition_penalty,
            "repetition_context_size": body.repetition_context_size,
            "presence_penalty": body.presence_penalty,
            "frequency_penalty": body.frequency_penalty,
            "top_logprobs": body.logprobs,
            "n": body.n,
        }
    )
    task = TextGenerationTaskParams(
        model=ModelId(body.model),
        input=[InputMessage(role="user", content=prompts[0])],
        max_output_tokens=DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        stream=body.stream,
        top_k=body.top_k,
        stop=stop_strings(body.stop),
        seed=body.seed,
        logprobs=body.logprobs is not None,
        top_logprobs=body.logprobs,
        min_p=body.min_p,
        repetition_penalty=body.repetition_penalty,
        repetition_context_size=body.repetition_context_size,
    )
    options = GenerationOptions(
        prompt=prompts[0],
        n=body.n or 1,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        logit_bias=logit_bias(body.logit_bias),
    )
    return GenerationParams(task, options)


class CompletionChunks:
    """Frames of one streamed text. Counts characters, because offsets run over all frames."""

    def __init__(self, command_id: str, model: str, created: int, echoed: str) -> None:
        self._empty = CompletionResponse(id=command_id, created=created, model=model, choices=[])
        self._echoed = echoed
        self._lengths: dict[int, int] = {}

    def frame(self, item: OutputItem, usage: Usage | None = None) -> str:
        begun = item.choice in self._lengths
        offset = self._lengths.get(item.choice, len(self._echoed))
        said = item.reasoning + item.text
        choice = CompletionChoice(
            text=said if begun else self._echoed + said,
            index=item.choice,
            logprobs=None if item.logprobs is None else token_columns(item.logprobs, offset),
            finish_reason=item.finish_reason,
        )
        self._lengths[item.choice] = offset + len(said)
        frame = self._empty.model_copy(update={"choices": [choice], "usage": usage})
        return data(frame.model_dump_json())

    def usage_frame(self, usage: Usage) -> str:
        return data(self._empty.model_copy(update={"usage": usage}).model_dump_json())


def token_columns(items: Sequence[LogprobsContentItem], offset: int) -> CompletionLogprobs:
    """One list for each property, as this API has it; `offset` is where the first token begins."""
    offsets = []
    for item in items:
        offsets.append(offset)
        offset += len(item.token)
    return CompletionLogprobs(
        tokens=[item.token for item in items],
        token_logprobs=[item.logprob for item in items],
        top_logprobs=[{top.token: top.logprob for top in item.top_logprobs} for item in items],
        text_offset=offsets,
    )


def _choices(answer: GeneratedAnswer, echoed: str, *, logprobs: bool) -> list[CompletionChoice]:
    return [
        CompletionChoice(
            text=echoed + "".join(choice.reasoning) + choice.text,
            index=index,
            logprobs=token_columns(choice.logprobs, len(echoed)) if logprobs else None,
            finish_reason=choice.finish_reason,
        )
        for index, choice in enumerate(answer.choices)
    ]

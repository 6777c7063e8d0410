"""Runs gateway jobs on the models of this cluster, dispatched like requests of the API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from skulkd.requests.answer import GeneratedAnswer
from skulkd.requests.chat_params import chat_params, max_tokens
from skulkd.requests.embedding_params import check_generates
from skulkd.requests.errors import RequestError, raise_if_failed
from skulkd.requests.generation_params import GenerationParams, check_budget
from skulkd.requests.selection import card_of
from skulkd.requests.service import Requests
from skulkd.runner.protocol import Output
from skulkd.store.cards.model_list import resolve_capabilities
from skulkd.swarm.chat_format import Completion, JobToolCall, ollama_message, response_schema
from skulkd.swarm.errors import JobError
from skulkd.swarm.job_runner import ChatSinks, ChatWork
from skulkd.wire.cards import ModelCard
from skulkd.wire.chat import ChatCompletionRequest
from skulkd.wire.instances import Instance
from skulkd.worker.task_stream import TaskEnded

_SENDERS_FAULT = frozenset({"invalid_request", "not_placed", "too_large"})
_OPTIONS = {"temperature": "temperature", "top_p": "top_p", "num_predict": "max_tokens"}


class ClusterExecutor:
    """Runs jobs as generation requests."""

    def __init__(
        self, requests: Requests, loadable: Callable[[], Iterable[ModelCard]] = tuple
    ) -> None:
        """`loadable` are models that may be placed for a job: only those are advertised, and
        hidden from the gateway where the owner says so."""
        self._requests = requests
        self._loadable = loadable

    async def chat(self, work: ChatWork, sinks: ChatSinks) -> Completion:
        streams = work.request.get("stream") is True
        sinks.status("thinking")
        return await self._answer(work.model, work.request, sinks if streams else None)

    async def ollama(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        options = body.get("options") or {}
        chat_request: dict[str, Any] = {"messages": body.get("messages")}
        chat_request |= {
            ours: options[theirs] for theirs, ours in _OPTIONS.items() if theirs in options
        }
        if "stop" in options:
            chat_request["stop"] = options["stop"]
        if (shape := body.get("format")) is not None:
            chat_request["response_format"] = _response_format(shape)
        if body.get("tools"):
            chat_request["tools"] = body["tools"]
        model = str(body.get("model"))
        completion = await self._answer(model, chat_request, None)
        return {
            "model": model,
            "message": ollama_message(completion.content, completion.tool_calls),
            "done": True,
            "prompt_eval_count": completion.prompt_tokens,
            "eval_count": completion.tokens,
        }

    async def _answer(
        self, model: str, chat_request: Mapping[str, Any], sinks: ChatSinks | None
    ) -> Completion:
        try:
            return await self._generate(await self._prepare(model, chat_request), sinks)
        except RequestError as error:
            if error.code in _SENDERS_FAULT:
                raise JobError("validation_failed", str(error)) from error
            raise

    async def _prepare(self, model: str, chat_request: Mapping[str, Any]) -> GenerationParams:
        """In a thread: checking a large request must not block the API."""
        body = await asyncio.to_thread(_request, model, chat_request)
        instances = await self._instances(body.model)
        card = card_of(instances[0])
        check_generates(card)
        capabilities = resolve_capabilities(card)
        params = await asyncio.to_thread(chat_params, body, capabilities, bench=False)
        limits = [instance.context_token_limit for instance in instances]
        check_budget(max_tokens(body), limits, params.options.name_of("max_tokens"))
        return params

    async def _instances(self, model: str) -> Sequence[Instance]:
        """Raises RequestError."""
        dispatcher = self._requests.dispatcher
        if any(card.model_id == model for card in self._loadable()):
            return await dispatcher.ensure_placed(model)
        return dispatcher.instances_of(model)

    async def _generate(self, params: GenerationParams, sinks: ChatSinks | None) -> Completion:
        answer = GeneratedAnswer(params.options.n)
        async with self._requests.open() as request:
            stream = await self._requests.stream(request, params)
            if stream is None or request.cancelled:
                raise JobError("upstream_error", "the job was cancelled on this node")
            async for item in stream:
                if isinstance(item, Output):
                    answer.add(item)
                    _emit(item, sinks)
                elif isinstance(item, TaskEnded):
                    _check(item)
        calls = [JobToolCall(c.id, c.name, c.arguments) for c in answer.choices[0].tool_calls]
        if sinks is not None:
            if calls:
                sinks.tool_calls(calls)
            sinks.emit(None)
        usage = answer.usage
        return Completion(
            answer.choices[0].text,
            None if usage is None else usage.prompt_tokens,
            None if usage is None else usage.completion_tokens,
            calls,
        )


def _emit(output: Output, sinks: ChatSinks | None) -> None:
    if sinks is not None:
        for item in output.items:
            if item.text and item.choice == 0:
                sinks.emit(item.text)


def _check(ended: TaskEnded) -> None:
    raise_if_failed(ended)
    if ended.status != "Complete":
        raise JobError("upstream_error", "the job was cancelled on this node")


def _request(model: str, chat_request: Mapping[str, Any]) -> ChatCompletionRequest:
    """The request of a job for a local model; `n` is always 1."""
    fields = {key: value for key, value in chat_request.items() if key != "n"}
    shape = fields.get("response_format")
    if isinstance(shape, Mapping) and shape.get("type") == "json_schema":
        fields["response_format"] = _response_format(response_schema(shape))
    try:
        return ChatCompletionRequest.model_validate({**fields, "model": model, "stream": False})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise JobError("validation_failed", f"openai_request.{where}: {first['msg']}") from None


def _response_format(shape: object) -> dict[str, Any]:
    if isinstance(shape, Mapping):
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(shape)}}
    return {"type": "json_object"}

"""Jobs of a gateway on the cluster's own models, by the same way as requests of the API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from skulkd.api.chat_request import read_chat, wanted_tokens
from skulkd.api.dispatch import card_of
from skulkd.api.errors import ApiError
from skulkd.api.failures import failure_of_task
from skulkd.api.inference import Inference
from skulkd.api.wanted import Wanted, check_budget
from skulkd.api.whole_answer import WholeAnswer
from skulkd.runner.protocol import Output
from skulkd.store.catalogue import resolve_capabilities
from skulkd.swarm.agents import JobError
from skulkd.swarm.jobs import Outcome, Sinks, Work
from skulkd.swarm.messages import response_schema
from skulkd.swarm.tool_calls import ToolCall, ollama_message
from skulkd.wire.chat import ChatCompletionRequest
from skulkd.worker.task_stream import TaskEnded

_SENDERS_FAULT = frozenset({400, 404, 413, 422})
_OPTIONS = {"temperature": "temperature", "top_p": "top_p", "num_predict": "max_tokens"}


class ClusterExecutor:
    """Runs jobs through the dispatcher."""

    def __init__(self, inference: Inference) -> None:
        self._inference = inference

    async def chat(self, work: Work, sinks: Sinks) -> Outcome:
        streams = work.request.get("stream") is True
        sinks.status("thinking")
        return await self._answer(work.model, work.request, sinks if streams else None)

    async def ollama(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        options = body.get("options") or {}
        asked: dict[str, Any] = {"messages": body.get("messages")}
        asked |= {ours: options[theirs] for theirs, ours in _OPTIONS.items() if theirs in options}
        if "stop" in options:
            asked["stop"] = options["stop"]
        if (shape := body.get("format")) is not None:
            asked["response_format"] = _response_format(shape)
        if body.get("tools"):
            asked["tools"] = body["tools"]
        model = str(body.get("model"))
        outcome = await self._answer(model, asked, None)
        return {
            "model": model,
            "message": ollama_message(outcome.content, outcome.tool_calls),
            "done": True,
            "prompt_eval_count": outcome.prompt_tokens,
            "eval_count": outcome.completion_tokens,
        }

    async def _answer(self, model: str, asked: Mapping[str, Any], sinks: Sinks | None) -> Outcome:
        try:
            return await self._generate(await self._prepare(model, asked), sinks)
        except ApiError as error:
            if error.status in _SENDERS_FAULT:
                raise JobError("validation_failed", error.message) from error
            raise

    async def _prepare(self, model: str, asked: Mapping[str, Any]) -> Wanted:
        """Large requests take long to check, which must not hold up the API."""
        body = await asyncio.to_thread(_request, model, asked)
        instances = self._inference.dispatcher.instances_of(body.model)
        capabilities = resolve_capabilities(card_of(instances[0]))
        wanted = await asyncio.to_thread(read_chat, body, capabilities, bench=False)
        check_budget(wanted_tokens(body), [instance.context_token_limit for instance in instances])
        return wanted

    async def _generate(self, wanted: Wanted, sinks: Sinks | None) -> Outcome:
        inference = self._inference
        answer = WholeAnswer(wanted.options.n)
        async with inference.commands.open() as command:
            stream = await inference.dispatcher.submit(command, wanted)
            if stream is None:
                stream = await inference.dispatcher.submit_when_ready(command, wanted)
            if stream is None or command.cancelled:
                raise JobError("upstream_error", "the job was cancelled on this node")
            async for item in stream:
                if isinstance(item, Output):
                    inference.figures.tokens += sum(part.tokens for part in item.items)
                    answer.add(item)
                    _emit(item, sinks)
                elif isinstance(item, TaskEnded):
                    _check(item)
        calls = [ToolCall(c.id, c.name, c.arguments) for c in answer.choices[0].tool_calls]
        if sinks is not None:
            if calls:
                sinks.tool_calls(calls)
            sinks.emit(None)
        usage = answer.usage
        return Outcome(
            answer.choices[0].text,
            None if usage is None else usage.prompt_tokens,
            None if usage is None else usage.completion_tokens,
            calls,
        )


def _emit(output: Output, sinks: Sinks | None) -> None:
    if sinks is not None:
        for item in output.items:
            if item.text and item.choice == 0:
                sinks.emit(item.text)


def _check(ended: TaskEnded) -> None:
    error = failure_of_task(ended)
    if error is not None:
        raise error
    if ended.status != "Complete":
        raise JobError("upstream_error", "the job was cancelled on this node")


def _request(model: str, asked: Mapping[str, Any]) -> ChatCompletionRequest:
    """The job's request for a local model; one answer, whatever it asks for."""
    wanted = {key: value for key, value in asked.items() if key != "n"}
    shape = wanted.get("response_format")
    if isinstance(shape, Mapping) and shape.get("type") == "json_schema":
        wanted["response_format"] = _response_format(response_schema(shape))
    try:
        return ChatCompletionRequest.model_validate({**wanted, "model": model, "stream": False})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise JobError("validation_failed", f"openai_request.{where}: {first['msg']}") from None


def _response_format(shape: object) -> dict[str, Any]:
    if isinstance(shape, Mapping):
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(shape)}}
    return {"type": "json_object"}

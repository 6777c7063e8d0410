"""Jobs of a gateway on the cluster's own models, by the same way as requests of the API."""

from __future__ import annotations

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
from skulkd.swarm.jobs import Emit, Outcome, Work
from skulkd.wire.chat import ChatCompletionRequest
from skulkd.worker.task_stream import TaskEnded

_SENDERS_FAULT = frozenset({400, 404, 413, 422})
_OPTIONS = {"temperature": "temperature", "top_p": "top_p", "num_predict": "max_tokens"}


class ClusterExecutor:
    """Runs jobs through the dispatcher."""

    def __init__(self, inference: Inference) -> None:
        self._inference = inference

    async def chat(self, work: Work, emit: Emit) -> Outcome:
        streams = work.request.get("stream") is True
        return await self._answer(_request(work.model, work.request), emit if streams else None)

    async def ollama(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        options = body.get("options") or {}
        asked: dict[str, Any] = {"messages": body.get("messages")}
        asked |= {ours: options[theirs] for theirs, ours in _OPTIONS.items() if theirs in options}
        if "stop" in options:
            asked["stop"] = options["stop"]
        if (shape := body.get("format")) is not None:
            asked["response_format"] = _response_format(shape)
        model = str(body.get("model"))
        outcome = await self._answer(_request(model, asked), None)
        return {
            "model": model,
            "message": {"role": "assistant", "content": outcome.content},
            "done": True,
            "prompt_eval_count": outcome.prompt_tokens,
            "eval_count": outcome.completion_tokens,
        }

    async def _answer(self, body: ChatCompletionRequest, emit: Emit | None) -> Outcome:
        try:
            return await self._generate(self._prepare(body), emit)
        except ApiError as error:
            if error.status in _SENDERS_FAULT:
                raise JobError("validation_failed", error.message) from error
            raise

    def _prepare(self, body: ChatCompletionRequest) -> Wanted:
        instances = self._inference.dispatcher.instances_of(body.model)
        wanted = read_chat(body, resolve_capabilities(card_of(instances[0])), bench=False)
        check_budget(wanted_tokens(body), [instance.context_token_limit for instance in instances])
        return wanted

    async def _generate(self, wanted: Wanted, emit: Emit | None) -> Outcome:
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
                    _emit(item, emit)
                elif isinstance(item, TaskEnded):
                    _check(item)
        if emit is not None:
            emit(None)
        usage = answer.usage
        return Outcome(
            answer.choices[0].text,
            None if usage is None else usage.prompt_tokens,
            None if usage is None else usage.completion_tokens,
        )


def _emit(output: Output, emit: Emit | None) -> None:
    if emit is not None:
        for item in output.items:
            if item.text and item.choice == 0:
                emit(item.text)


def _check(ended: TaskEnded) -> None:
    error = failure_of_task(ended)
    if error is not None:
        raise error
    if ended.status != "Complete":
        raise JobError("upstream_error", "the job was cancelled on this node")


def _request(model: str, asked: Mapping[str, Any]) -> ChatCompletionRequest:
    """The job's request for a local model. Tools are the gateway's, not offered here."""
    wanted = {
        key: value for key, value in asked.items() if key not in {"tools", "tool_choice", "n"}
    }
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

"""From the body of a chat request to generation parameters. Pure.

Texts of parts and of system messages are joined; empty messages are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from skulkd.requests.errors import RequestError
from skulkd.requests.generation_params import (
    SAME_NAMES,
    FieldNames,
    GenerationParams,
    check_ranges,
    logit_bias,
    stop_strings,
)
from skulkd.runner.protocol import GenerationOptions
from skulkd.wire.cards import ReasoningEffort
from skulkd.wire.catalogue import ResolvedModelCapabilities
from skulkd.wire.chat import (
    ChatCompletionMessage,
    ChatCompletionMessageImageUrl,
    ChatCompletionRequest,
)
from skulkd.wire.ids import ModelId
from skulkd.wire.tasks import InputMessage, TextGenerationTaskParams

# OpenAI renamed the one to the other; chat templates know only the first.
_INSTRUCTING = frozenset({"system", "developer"})


def chat_params(
    body: ChatCompletionRequest,
    model: ResolvedModelCapabilities,
    *,
    bench: bool = False,
    names: FieldNames = SAME_NAMES,
) -> GenerationParams:
    """`names` are those that the client knows. Raises RequestError for what cannot be answered."""
    messages = [message for message in body.messages if _has_content(message)]
    if not messages:
        text = "there is nothing to generate from: no message has any content"
        raise RequestError("invalid_request", text)
    check_ranges(
        {
            "temperature": body.temperature,
            "top_p": body.top_p,
            "min_p": body.min_p,
            "repetition_penalty": body.repetition_penalty,
            "repetition_context_size": body.repetition_context_size,
            "presence_penalty": body.presence_penalty,
            "frequency_penalty": body.frequency_penalty,
            "top_logprobs": body.top_logprobs,
            "n": body.n,
        },
        names,
    )
    task = _task_params(body, messages, model, bench=bench)
    return GenerationParams(task, _options(body, _own_names(body, names)))


def _own_names(body: ChatCompletionRequest, names: FieldNames) -> dict[str, str]:
    if body.max_completion_tokens is None:
        return dict(names)
    return {"max_tokens": "max_completion_tokens", **names}


def max_tokens(body: ChatCompletionRequest) -> int | None:
    """The requested length of the answer, under either of its names."""
    given = body.max_completion_tokens
    return body.max_tokens if given is None else given


def _task_params(
    body: ChatCompletionRequest,
    messages: Sequence[ChatCompletionMessage],
    model: ResolvedModelCapabilities,
    *,
    bench: bool,
) -> TextGenerationTaskParams:
    thinking = resolve_thinking(model, body.reasoning_effort, body.enable_thinking)
    logprobs = body.top_logprobs is not None if body.logprobs is None else body.logprobs
    instructions = [_text(message) for message in messages if message.role in _INSTRUCTING]
    dialogue = [message for message in messages if message.role not in _INSTRUCTING]
    return TextGenerationTaskParams(
        model=ModelId(body.model),
        input=[InputMessage(role=message.role, content=_text(message)) for message in dialogue],
        instructions="\n".join(instructions) or None,
        max_output_tokens=max_tokens(body),
        temperature=body.temperature,
        top_p=body.top_p,
        stream=body.stream,
        tools=body.tools or None,
        bench=bench,
        top_k=body.top_k,
        stop=stop_strings(body.stop),
        seed=body.seed,
        chat_template_messages=_template_messages(instructions, dialogue),
        reasoning_effort=thinking.effort,
        enable_thinking=thinking.enabled,
        logprobs=logprobs,
        top_logprobs=body.top_logprobs if logprobs else None,
        min_p=body.min_p,
        repetition_penalty=body.repetition_penalty,
        repetition_context_size=body.repetition_context_size,
    )


def _options(body: ChatCompletionRequest, names: dict[str, str]) -> GenerationOptions:
    return GenerationOptions(
        n=body.n or 1,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        logit_bias=logit_bias(body.logit_bias),
        response_format=body.response_format,
        tool_choice=body.tool_choice,
        parallel_tool_calls=body.parallel_tool_calls,
        field_names=names,
    )


def _has_content(message: ChatCompletionMessage) -> bool:
    if message.content is not None:
        return True
    return bool(message.reasoning_content or message.tool_calls)


def _text(message: ChatCompletionMessage) -> str:
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    texts: list[str] = []
    for part in parts:
        if isinstance(part, ChatCompletionMessageImageUrl):
            text = "images cannot be used here: this node answers text only"
            raise RequestError("invalid_request", text)
        texts.append(part.text)
    return "\n".join(texts)


def _template_messages(
    instructions: Sequence[str], dialogue: Sequence[ChatCompletionMessage]
) -> list[dict[str, Any]] | None:
    """Whole messages for the template, only when roles and texts alone would lose something."""
    if not any(_has_more_than_text(message) for message in dialogue):
        return None
    system = [{"role": "system", "content": "\n".join(instructions)}] if instructions else []
    return [*system, *(_whole(message) for message in dialogue)]


def _has_more_than_text(message: ChatCompletionMessage) -> bool:
    extras = (message.tool_calls, message.tool_call_id, message.name, message.reasoning_content)
    return any(extra is not None for extra in extras)


def _whole(message: ChatCompletionMessage) -> dict[str, Any]:
    whole: dict[str, Any] = {"role": message.role, "content": _text(message)}
    if message.tool_calls:
        whole["tool_calls"] = [call.model_dump() for call in message.tool_calls]
    for key in ("tool_call_id", "name", "reasoning_content"):
        if (value := getattr(message, key)) is not None:
            whole[key] = value
    return whole


@dataclass(frozen=True, slots=True)
class Thinking:
    """None leaves it to the model's chat template."""

    effort: ReasoningEffort | None = None
    enabled: bool | None = None


def resolve_thinking(
    model: ResolvedModelCapabilities, effort: ReasoningEffort | None, enabled: bool | None
) -> Thinking:
    """What reaches the template; options that the model does not support are dropped."""
    if not model.supports_thinking:
        return Thinking()
    if not model.supports_thinking_toggle:
        return Thinking(effort=None if effort == "none" else effort)
    if effort == "none" or enabled is False:
        return Thinking(enabled=False)
    if enabled is True:
        return Thinking(effort=effort or model.default_reasoning_effort, enabled=True)
    if effort is None:
        return Thinking()
    on = effort != model.disabled_reasoning_effort
    return Thinking(effort=effort if on else None, enabled=on)

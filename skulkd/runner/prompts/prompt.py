"""From a request's messages to prompt text and tokens, with the model's own chat template."""

import json
from typing import Any

from jinja2 import TemplateError

from skulkd.runner.errors import BadRequest
from skulkd.runner.protocol import GenerationOptions
from skulkd.wire.tasks import TextGenerationTaskParams

# What a template may raise when messages do not suit it; none of it is our failure.
_TEMPLATE_ERRORS = (TemplateError, ValueError, TypeError, KeyError, AttributeError, IndexError)


def messages_of(params: TextGenerationTaskParams) -> list[dict[str, Any]]:
    """Messages as chat templates expect them: texts for contents, objects for arguments."""
    if params.chat_template_messages is not None:
        messages = [_for_template(message) for message in params.chat_template_messages]
    else:
        messages = [{"role": item.role, "content": item.content} for item in params.input]
    if params.instructions and not (messages and messages[0].get("role") == "system"):
        messages.insert(0, {"role": "system", "content": params.instructions})
    return messages


def _for_template(message: dict[str, Any]) -> dict[str, Any]:
    message = dict(message)
    if message.get("content") is None:
        message["content"] = ""
    if calls := message.get("tool_calls"):
        message["tool_calls"] = [_call_for_template(call) for call in calls]
    return message


def _call_for_template(call: dict[str, Any]) -> dict[str, Any]:
    function = dict(call.get("function") or {})
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            function["arguments"] = json.loads(arguments)
        except ValueError:
            function["arguments"] = {"text": arguments}
    return {**call, "function": function}


def template_switches(params: TextGenerationTaskParams) -> dict[str, Any]:
    """Thinking as the template's variables. Nothing given: the template's own default."""
    switches: dict[str, Any] = {}
    if params.enable_thinking is not None:
        switches["enable_thinking"] = params.enable_thinking
    if params.reasoning_effort == "none":
        switches["enable_thinking"] = False
    elif params.reasoning_effort is not None:
        switches["reasoning_effort"] = params.reasoning_effort
    return switches


def wanted_tools(
    params: TextGenerationTaskParams, options: GenerationOptions
) -> list[dict[str, Any]]:
    """The tools the model is told about: none when the client wants no call."""
    return [] if options.tool_choice == "none" else list(params.tools or [])


def render_prompt(
    tokenizer: Any, params: TextGenerationTaskParams, options: GenerationOptions
) -> str:
    """The prompt as text. Raises BadRequest when the template refuses the messages."""
    if options.prompt is not None:
        return options.prompt
    messages = messages_of(params)
    if not messages:
        raise BadRequest("there is nothing to generate from: no messages")
    if not tokenizer.has_chat_template:
        return _plain_dialogue(messages)
    extra = template_switches(params)
    if tools := wanted_tools(params, options):
        extra["tools"] = tools
    try:
        text = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **extra
        )
    except _TEMPLATE_ERRORS as error:
        raise BadRequest(f"the chat template refuses these messages: {error}") from error
    return str(text)


def _plain_dialogue(messages: list[dict[str, Any]]) -> str:
    """For base models, which bring no template."""
    lines = [f"{message.get('role')}: {message.get('content')}" for message in messages]
    return "\n".join([*lines, "assistant:"])


def tokenize_prompt(tokenizer: Any, text: str, *, raw: bool) -> list[int]:
    """Token ids. A template writes special tokens itself; raw text gets the model's own."""
    special = raw and (tokenizer.bos_token is None or not text.startswith(tokenizer.bos_token))
    return [int(token) for token in tokenizer.encode(text, add_special_tokens=special)]

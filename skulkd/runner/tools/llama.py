"""A bare JSON answer `{"name": …, "parameters": {…}}`, maybe after a tag: Llama 3."""

import json

from skulkd.runner.tools.calls import NotAToolCall, ToolFormat, call_from
from skulkd.wire.chat import ToolCallItem


def parse(text: str) -> list[ToolCallItem]:
    """Objects one after another, apart by white space, `;` or `,`. Raises NotAToolCall."""
    decoder = json.JSONDecoder()
    calls: list[ToolCallItem] = []
    rest = text.strip()
    while rest:
        try:
            value, end = decoder.raw_decode(rest)
        except ValueError as error:
            raise NotAToolCall(str(error)) from error
        calls.append(call_from(value))
        rest = rest[end:].lstrip(" \t\r\n;,")
    if not calls:
        raise NotAToolCall("empty")
    return calls


LLAMA = ToolFormat(
    name="llama",
    begin="<|python_tag|>",
    end="",
    parse=parse,
    whole=True,
    arguments_key="parameters",
)

"""`[TOOL_CALLS]` and a list of calls, or `name[ARGS]{…}` as newer Mistral models write."""

import json
import re

from skulkd.runner.tools.calls import NotAToolCall, ToolFormat, call_from, calls_from_json
from skulkd.wire.chat import ToolCallItem

_HEADER = re.compile(r"\s*([\w.-]+)\s*\[ARGS\]\s*")


def parse(text: str) -> list[ToolCallItem]:
    """Raises NotAToolCall."""
    text = text.strip()
    if text.startswith(("[", "{")):
        return calls_from_json(text)
    decoder = json.JSONDecoder()
    calls: list[ToolCallItem] = []
    at = 0
    while header := _HEADER.match(text, at):
        try:
            arguments, at = decoder.raw_decode(text, header.end())
        except ValueError as error:
            raise NotAToolCall(str(error)) from error
        calls.append(call_from({"name": header[1], "arguments": arguments}))
    if not calls or text[at:].strip():
        raise NotAToolCall("neither a list nor name[ARGS]{…}")
    return calls


MISTRAL = ToolFormat(name="mistral", begin="[TOOL_CALLS]", end="", parse=parse, as_list=True)

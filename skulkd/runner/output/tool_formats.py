"""How models write tool calls, and which of these formats a model uses. Pure."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from skulkd.wire.cards import ModelCard
from skulkd.wire.chat import ToolCallItem


class NotAToolCall(ValueError):
    """The text between the markers is not a call: it is shown as it stands."""


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How a model writes calls.

    `begin` opens a section. Without `end` the section goes on to the end of the answer. With
    `whole` an answer whose first character is `{` is a section too, without any marker.
    `arguments_key` and `as_list` say how a call that is forced by grammar must look.
    """

    name: str
    begin: str
    end: str
    parse: Callable[[str], list[ToolCallItem]]
    whole: bool = False
    arguments_key: str = "arguments"
    as_list: bool = False


def call_from(value: object) -> ToolCallItem:
    """A call out of `{"name": …, "arguments" or "parameters": {…}}`. Raises NotAToolCall."""
    if not isinstance(value, Mapping):
        raise NotAToolCall("not an object")
    inner = value.get("function")
    if isinstance(inner, Mapping):
        value = inner
    name = value.get("name")
    if not isinstance(name, str) or not name or not _is_text(name):
        raise NotAToolCall("no name")
    arguments = value.get("arguments", value.get("parameters", {}))
    return ToolCallItem(id=_id_of(value), name=name, arguments=_arguments_text(arguments))


def calls_from_json(text: str) -> list[ToolCallItem]:
    """One call or a list of calls. Raises NotAToolCall."""
    try:
        value: Any = json.loads(text)
    except ValueError as error:
        raise NotAToolCall(str(error)) from error
    values = value if isinstance(value, list) else [value]
    if not values:
        raise NotAToolCall("an empty list")
    return [call_from(item) for item in values]


def _id_of(value: Mapping[str, Any]) -> str:
    given = value.get("id")
    return given if isinstance(given, str) and given and _is_text(given) else str(uuid4())


def _arguments_text(arguments: object) -> str:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError as error:
            raise NotAToolCall(f"arguments are not JSON: {error}") from error
    if not isinstance(arguments, Mapping):
        raise NotAToolCall("arguments are not an object")
    text = json.dumps(arguments, ensure_ascii=False)
    # A model can escape half a character; only the escape can be sent on.
    return text if _is_text(text) else json.dumps(arguments)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


HERMES = ToolFormat(name="hermes", begin="<tool_call>", end="</tool_call>", parse=calls_from_json)


def _parse_llama(text: str) -> list[ToolCallItem]:
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
    parse=_parse_llama,
    whole=True,
    arguments_key="parameters",
)


_HEADER = re.compile(r"\s*([\w.-]+)\s*\[ARGS\]\s*")


def _parse_mistral(text: str) -> list[ToolCallItem]:
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


MISTRAL = ToolFormat(
    name="mistral", begin="[TOOL_CALLS]", end="", parse=_parse_mistral, as_list=True
)


_BY_FAMILY = {"llama": LLAMA, "mistral": MISTRAL, "ministral": MISTRAL, "devstral": MISTRAL}
_OWN = {format_.begin: format_ for format_ in (HERMES, MISTRAL)}


def choose_format(
    card: ModelCard,
    *,
    template: str,
    begin: str | None = None,
    end: str | None = None,
    parse: Callable[[str, Any], Any] | None = None,
) -> ToolFormat:
    """`begin`, `end` and `parse` are what the tokenizer brings for its model, if anything."""
    family = (card.family or card.model_id.rpartition("/")[2].partition("-")[0]).lower()
    if begin is not None and parse is not None and not _plain_json(begin, template):
        return ToolFormat(name="native", begin=begin, end=end or "", parse=_adapted(parse))
    for known, format_ in _OWN.items():
        if known in template:
            return format_
    for known_family, format_ in _BY_FAMILY.items():
        if family.startswith(known_family):
            return format_
    return HERMES


def _plain_json(begin: str, template: str) -> bool:
    """Formats that our own modules read; `<tool_call>` also opens calls that are not JSON."""
    other = ("<function=", "<arg_key>")
    return begin in _OWN and not any(mark in template for mark in other)


def _adapted(parse: Callable[[str, Any], Any]) -> Callable[[str], list[ToolCallItem]]:
    def parse_calls(text: str) -> list[ToolCallItem]:
        try:
            parsed = parse(text, None)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, SyntaxError) as error:
            raise NotAToolCall(str(error)) from error
        return [call_from(value) for value in (parsed if isinstance(parsed, list) else [parsed])]

    return parse_calls

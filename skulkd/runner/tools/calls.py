"""What every tool format needs: the shape of a format, and calls out of parsed JSON. Pure."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

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

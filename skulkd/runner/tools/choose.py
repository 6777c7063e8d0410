"""Which tool format a model writes: what its tokenizer says, else its card's family. Pure."""

from collections.abc import Callable
from typing import Any

from skulkd.runner.tools.calls import NotAToolCall, ToolFormat, call_from
from skulkd.runner.tools.hermes import HERMES
from skulkd.runner.tools.llama import LLAMA
from skulkd.runner.tools.mistral import MISTRAL
from skulkd.wire.cards import ModelCard
from skulkd.wire.chat import ToolCallItem

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

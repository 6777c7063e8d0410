"""Model cards as TOML text, both ways. Pure."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from skulkd.settings.problems import Problem, nearest, shown
from skulkd.store.errors import BadCardError, BadModelIdError
from skulkd.store.model_ids import check_model_id
from skulkd.wire.cards import ModelCard

_ESCAPES = {
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
    '"': '\\"',
    "\\": "\\\\",
}


def card_from_toml(text: str, source: str) -> ModelCard:
    """The card in `text`. Raises BadCardError; `source` is the file to name in it."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadCardError([Problem(f"not TOML: {error}", source=source)]) from error
    # Decided by where the card lies, never by what it says.
    data.pop("is_custom", None)
    try:
        card = ModelCard.model_validate(data)
        check_model_id(card.model_id)
    except ValidationError as error:
        raise BadCardError(_problems(error, source)) from error
    except BadModelIdError as error:
        problem = Problem(error.message, key="model_id", source=source)
        raise BadCardError([problem]) from error
    if card.vision is not None and not card.vision.weights_repo:
        own = card.vision.model_copy(update={"weights_repo": card.model_id})
        card = card.model_copy(update={"vision": own})
    return card


def card_to_toml(card: ModelCard) -> str:
    """Everything that is set, in the order of the schema, plain values first."""
    data = card.model_dump(by_alias=False, exclude_none=True, exclude={"is_custom"})
    components: list[dict[str, Any]] = data.pop("components", None) or []
    tables = {key: value for key, value in data.items() if isinstance(value, dict)}
    lines = list(_plain_lines(data))
    for key, table in tables.items():
        lines += ["", f"[{key}]", *_plain_lines(table)]
    for component in components:
        lines += ["", "[[components]]", *_plain_lines(component)]
        lines += ["", "[components.storage_size]", *_plain_lines(component["storage_size"])]
    return "\n".join(lines) + "\n"


def _plain_lines(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if not isinstance(value, dict):
            yield f"{key} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    return _string(value)


def _string(text: str) -> str:
    return f'"{"".join(_character(character) for character in text)}"'


def _character(character: str) -> str:
    escape = _ESCAPES.get(character)
    if escape is not None:
        return escape
    control = ord(character) < 0x20 or ord(character) == 0x7F
    return f"\\u{ord(character):04X}" if control else character


def _problems(error: ValidationError, source: str) -> Iterator[Problem]:
    for item in error.errors(include_url=False):
        key = ".".join(str(part) for part in item["loc"])
        if item["type"] == "missing":
            # Missing keys are named as the API spells them.
            key = re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", key)
            yield Problem("this key is required", key=key, source=source)
        elif item["type"] == "extra_forbidden":
            suggestion = nearest(key, ModelCard.model_fields)
            yield Problem("unknown key", key=key, source=source, suggestion=suggestion)
        else:
            yield Problem(item["msg"], key=key, value=shown(item["input"]), source=source)

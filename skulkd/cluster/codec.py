"""Messages between nodes as JSON. Keys that this version does not know are ignored. Pure."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from skulkd.cluster.messages import Message
from skulkd.wire.instances import WHOLE

_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}
_KINDS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in get_args(Message)}


class Unreadable(ValueError):
    """A message of another shape than this version knows."""


def kind_of(message: Message) -> str:
    return type(message).__name__.lower()


def is_message(kind: str) -> bool:
    return kind in _KINDS


def dump(message: object) -> bytes:
    kind: type[Any] = type(message)
    return _adapter(kind).dump_json(message, context=WHOLE)


def load(kind: str, body: bytes) -> Message:
    """Raises Unreadable."""
    message: Message = load_as(_KINDS[kind], body)
    return message


def load_as(kind: type[Any], body: bytes) -> Any:
    """A value of this dataclass. Raises Unreadable."""
    try:
        return _adapter(kind).validate_json(body, extra="ignore")
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Unreadable(f"{kind.__name__}.{where}: {first['msg']}") from error


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    adapter = _ADAPTERS.get(kind)
    if adapter is None:
        adapter = _ADAPTERS[kind] = TypeAdapter(kind)
    return adapter

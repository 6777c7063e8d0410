"""Messages between nodes as JSON. Keys that this version does not know are ignored. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from skulkd.cluster.messages import (
    AlreadyOrdered,
    AssignedName,
    Entries,
    HandOver,
    HandOverDone,
    Join,
    JournalSnapshot,
    Leaving,
    Message,
    NodeHeartbeat,
    RequestHandOver,
    Stored,
    Submit,
    UnplacedList,
)
from skulkd.wire.instances import WHOLE

_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}
# Names on the wire: nodes of other versions read them, so they never change.
_KINDS: dict[str, type[Any]] = {
    "beat": NodeHeartbeat,
    "join": Join,
    "entries": Entries,
    "snapshot": JournalSnapshot,
    "stored": Stored,
    "waiting": UnplacedList,
    "submit": Submit,
    "known": AlreadyOrdered,
    "conquer": RequestHandOver,
    "cede": HandOver,
    "ceded": HandOverDone,
    "named": AssignedName,
    "bye": Leaving,
}
_KIND_OF = {message: kind for kind, message in _KINDS.items()}


class UnreadableMessage(ValueError):
    """A message of another shape than this version knows."""


def kind_of(message: Message) -> str:
    return _KIND_OF[type(message)]


def is_message(kind: str) -> bool:
    return kind in _KINDS


def dump(message: object) -> bytes:
    kind: type[Any] = type(message)
    return _adapter(kind).dump_json(message, context=WHOLE)


def load(kind: str, body: bytes) -> Message:
    """Raises UnreadableMessage."""
    message: Message = load_as(_KINDS[kind], body)
    return message


def load_as(kind: type[Any], body: bytes) -> Any:
    """A value of this dataclass. Raises UnreadableMessage."""
    try:
        return _adapter(kind).validate_json(body, extra="ignore")
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UnreadableMessage(f"{kind.__name__}.{where}: {first['msg']}") from error


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    adapter = _ADAPTERS.get(kind)
    if adapter is None:
        adapter = _ADAPTERS[kind] = TypeAdapter(kind)
    return adapter

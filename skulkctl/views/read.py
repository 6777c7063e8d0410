"""Tolerant reading of JSON: what is missing or of another type is None.

It must not know any particular document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from skulkctl.units import parse_time

Document = Mapping[str, object]


def dig(document: object, *keys: str) -> object:
    """The value under nested keys, or None as soon as one is missing."""
    for key in keys:
        if not isinstance(document, Mapping):
            return None
        document = document.get(key)
    return document


def mapping(document: object, *keys: str) -> Document:
    found = dig(document, *keys)
    return found if isinstance(found, Mapping) else {}


def sequence(document: object, *keys: str) -> Sequence[object]:
    found = dig(document, *keys)
    return found if isinstance(found, list | tuple) else ()


def text(document: object, *keys: str) -> str | None:
    """A non-empty string; the API's placeholder `Unknown` also counts as missing."""
    found = dig(document, *keys)
    return found if isinstance(found, str) and found not in ("", "Unknown") else None


def number(document: object, *keys: str) -> float | None:
    found = dig(document, *keys)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return float(found) if is_number and isinstance(found, int | float) else None


def integer(document: object, *keys: str) -> int | None:
    found = dig(document, *keys)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def flag(document: object, *keys: str) -> bool | None:
    found = dig(document, *keys)
    return found if isinstance(found, bool) else None


def either(value: bool | None, yes: str, no: str) -> str | None:
    """A flag in words; None stays None."""
    return None if value is None else yes if value else no


def size_bytes(document: object, *keys: str) -> int | None:
    """The bytes of a `{"inBytes": n}`; hand-built answers spell it `in_bytes`."""
    memory = dig(document, *keys)
    camel = integer(memory, "inBytes")
    return integer(memory, "in_bytes") if camel is None else camel


def moment(document: object, *keys: str) -> datetime | None:
    found = dig(document, *keys)
    return parse_time(found) if isinstance(found, str) else None


def tagged(value: object) -> tuple[str, Document]:
    """Tag and fields of a one-key `{"ClassName": {…}}`; an empty tag when it is not one."""
    if isinstance(value, Mapping) and len(value) == 1:
        ((tag, fields),) = value.items()
        if isinstance(fields, Mapping):
            return str(tag), fields
    return "", {}

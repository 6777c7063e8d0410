"""Values as the reference's JavaScript reads and writes them, and checks of text from a gateway.

A gateway compares hashes and signatures that were made by JSON.stringify, trim and Math.round,
so these few differ from Python's own on purpose.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import quote

# What ECMAScript trims; Python would also take U+001C to U+001F and U+0085, and leave U+FEFF.
_TRIMMED = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
_RADIX = {"0x": 16, "0o": 8, "0b": 2}
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_SERVER_NAME_LENGTH = 80
_TRUE = frozenset({"1", "true", "yes"})
_FALSE = frozenset({"0", "false", "no"})
_EXPOSED = ("all", "expose-all", "exposed", "true", "1", "yes")
_HIDDEN = ("none", "off", "disabled", "false", "0", "no")
EXPOSURE_WORDS = (*_EXPOSED, *_HIDDEN)
# Beyond this an integer has no finite floating-point value.
_LARGEST = 2**1023
MAX_ID = 256
MAX_NAME = 512
REPLACEMENT = "\ufffd"
# The first character keeps "." and ".." out, which would change the path of a URL.
_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:/@+=~-]{0,255}")
_HEADER_TOKEN = re.compile(r"[!-~]{1,4096}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def trim(text: str) -> str:
    return text.strip(_TRIMMED)


def optional_text(value: object) -> str | None:
    """Trimmed text; None for what is blank or no text."""
    return trim(value) or None if isinstance(value, str) else None


def first_text(*values: object) -> str | None:
    """The first that is text and not blank."""
    return next((text for value in values if (text := optional_text(value))), None)


def is_number(value: object) -> bool:
    """A finite number; booleans are not numbers there."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < _LARGEST if isinstance(value, int) else math.isfinite(value)


def non_negative_integer(value: object) -> int:
    """A finite number above zero, floored; anything else is 0."""
    if not isinstance(value, int | float) or not is_number(value):
        return 0
    return math.floor(value) if value > 0 else 0


def round_half_up(value: float) -> int:
    return math.floor(value + 0.5)


def round_ratio(value: float, digits: int = 3) -> float | int:
    """Half goes up; what is not finite is 0; whole values are integers, as JSON writes them."""
    if not math.isfinite(value):
        return 0
    factor = 10**digits
    rounded = round_half_up(value * factor) / factor
    return int(rounded) if rounded.is_integer() else rounded


def compact_json(value: Any) -> str:
    """What is hashed and signed. Raises ValueError for half a surrogate pair."""
    text = json_text(value)
    text.encode()
    return text


def json_text(value: Any) -> str:
    """Byte for byte what JSON.stringify writes."""
    return json.dumps(
        _whole_numbers(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )


def _whole_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole_numbers(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_whole_numbers(entry) for entry in value]
    return value


def sha256_hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def machine_fingerprint(machine_id: str) -> str:
    return f"sha256:{sha256_hex(trim(machine_id))}"


def iso_time(moment: datetime) -> str:
    """Milliseconds and Z."""
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


def encode_component(text: str) -> str:
    return quote(text, safe="-_.!~*'()")


def parse_positive_integer(value: object, fallback: int) -> int:
    """What Number() makes of it, floored; the fallback unless that is above zero."""
    number = _number(value)
    if number is None or not math.isfinite(number) or math.floor(number) <= 0:
        return fallback
    return math.floor(number)


def _number(value: object) -> float | None:
    if isinstance(value, int | float):
        return value if is_number(value) else None
    text = optional_text(value)
    if text is None:
        return None
    if (radix := _RADIX.get(text[:2].lower())) is not None:
        try:
            return int(text[2:], radix)
        except ValueError:
            return None
    return float(text) if _DECIMAL.fullmatch(text) else None


def parse_boolean(value: object, fallback: bool) -> bool:
    """Only 1/true/yes and 0/false/no mean something, in any case."""
    if isinstance(value, bool):
        return value
    word = parse_boolean_word(value)
    return fallback if word is None else word


def parse_boolean_word(value: object) -> bool | None:
    """None for any other word."""
    word = trim(value).lower() if isinstance(value, str) else ""
    return True if word in _TRUE else False if word in _FALSE else None


def parse_exposure_policy(value: object) -> Literal["all", "none"] | None:
    """None for any other word."""
    word = trim(value).lower().replace("_", "-") if isinstance(value, str) else ""
    return "all" if word in _EXPOSED else "none" if word in _HIDDEN else None


def parse_list(value: object) -> list[str]:
    """Text split at commas, or the texts of a list; blanks are dropped."""
    parts = value.split(",") if isinstance(value, str) else value
    entries = parts if isinstance(parts, list | tuple) else ()
    return [text for entry in entries if (text := optional_text(entry))]


def normalize_server_name(name: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return words[:_SERVER_NAME_LENGTH] or "local-node"


def mapping_of(value: object) -> Mapping[str, Any]:
    """The object of another's JSON; anything else counts as an empty one."""
    return value if isinstance(value, Mapping) else {}


def well_formed(text: str) -> str:
    """Text that can be encoded as UTF-8."""
    return text if text.isascii() else _SURROGATE.sub(REPLACEMENT, text)


def printable(text: str) -> str:
    """Text for people and logs: control characters could move a terminal's cursor."""
    return _CONTROL.sub(REPLACEMENT, well_formed(text))


def is_plain_id(value: object) -> bool:
    """An id that is safe in URLs, file names, logs and tables."""
    return isinstance(value, str) and _PLAIN_ID.fullmatch(value) is not None


def is_header_token(value: object) -> bool:
    """A secret that can be sent in a header: visible ASCII, no spaces, at most 4096."""
    return isinstance(value, str) and _HEADER_TOKEN.fullmatch(value) is not None


def is_name(value: object) -> bool:
    """Text of one line that can be shown."""
    return isinstance(value, str) and len(value) <= MAX_NAME and _CONTROL.search(value) is None

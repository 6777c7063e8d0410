"""Frames between nodes: a small JSON head, a newline, then an opaque body. Pure.

Unknown keys of a head are ignored, so newer versions can add some.
"""

from __future__ import annotations

import json
from typing import Any

Head = dict[str, Any]


class BadFrame(ValueError):
    """These bytes are not a frame."""


def encode(kind: str, body: bytes = b"", **head: object) -> bytes:
    return json.dumps({"k": kind, **head}, separators=(",", ":")).encode() + b"\n" + body


def decode(frame: bytes) -> tuple[str, Head, bytes]:
    """Kind, head and body. Raises BadFrame."""
    text, found, body = frame.partition(b"\n")
    try:
        head = json.loads(text)
    except ValueError:
        raise BadFrame("the head is not JSON") from None
    if not found or not isinstance(head, dict) or not isinstance(head.get("k"), str):
        raise BadFrame("the head names no kind")
    return head["k"], head, body

"""The recorded behaviour of the reference, `tests/data/mswarm.json`, and how to compare with it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "mswarm.json").read_text(encoding="utf-8")
)
_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def cases(name: str) -> list[Any]:
    """The cases of one vector. Never none: an empty list would test nothing."""
    found = VECTORS[name]
    assert found
    return list(found)


def case_id(case: Any) -> str:
    if isinstance(case, dict):
        for key in ("id", "input", "message", "host", "name"):
            if isinstance(case.get(key), str):
                return str(case[key])[:30].replace(" ", "_").replace("/", ".") or "blank"
    return "case"


def same(found: Any, expected: Any, at: str = "$") -> None:
    """Equal, keys in the same order, where placeholders stand for times and free wording."""
    match expected:
        case "<iso>":
            assert isinstance(found, str) and _ISO.fullmatch(found), at
        case "<ms>" | "<unix-seconds>":
            assert isinstance(found, int) and not isinstance(found, bool) and found >= 0, at
        case "<text>":
            assert isinstance(found, str) and found, at
        case dict():
            assert list(found) == list(expected), at
            for key, value in expected.items():
                same(found[key], value, f"{at}.{key}")
        case list():
            assert isinstance(found, list), at
            assert len(found) == len(expected), at
            for index, value in enumerate(expected):
                same(found[index], value, f"{at}[{index}]")
        case _:
            assert found == expected and type(found) is type(expected), (
                f"{at}: {found!r} is not {expected!r}"
            )

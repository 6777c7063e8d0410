"""The filter language of the screens: substring, !not, /regex/, key:value. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Fields = Mapping[str, str]
"""What can be filtered by name; the whole row is under the empty name."""

Test = Callable[[Fields], bool]


class BadFilter(ValueError):
    """The text is not a filter; `str()` says why."""


@dataclass(frozen=True, slots=True)
class Filter:
    """All words must fit."""

    typed: str
    tests: tuple[Test, ...]

    def fits(self, fields: Fields) -> bool:
        return all(test(fields) for test in self.tests)


def parse_filter(typed: str) -> Filter:
    """`node:kite2 phase:prefill !barrier /eval_(recv|output)/`. Raises BadFilter."""
    return Filter(typed.strip(), tuple(_test(word) for word in typed.split()))


def _test(word: str) -> Test:
    if word.startswith("!") and len(word) > 1:
        inner = _test(word[1:])
        return lambda fields: not inner(fields)
    if len(word) > 2 and word.startswith("/") and word.endswith("/"):
        try:
            pattern = re.compile(word[1:-1])
        except re.error as error:
            raise BadFilter(f"{word}: {error}") from None
        return lambda fields: pattern.search(fields[""]) is not None
    name, colon, value = word.partition(":")
    if colon and value:
        wanted = value.casefold()
        return lambda fields: wanted in fields.get(name, "").casefold()
    wanted = word.casefold()
    return lambda fields: wanted in fields[""].casefold()

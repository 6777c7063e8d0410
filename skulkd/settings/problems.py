"""What is wrong with the settings, one `Problem` each, and the error that carries them all.

Must stay free of heavy imports: the CLI loads it on every start.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

_MAX_SHOWN = 80
_MAX_LINES = 50
_MAX_KEY = 200


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing an operator has to correct.

    `source` is what the operator wrote it in: a file path, a variable, or a flag. `line` counts
    from 1. `value` is already text for people; a secret must never get here.
    """

    message: str
    key: str | None = None
    value: str | None = None
    source: str | None = None
    line: int | None = None
    suggestion: str | None = None

    def render(self) -> str:
        """One line: `skulk.yaml:7: model_store.store_prt: unknown key (value 58080); did …`."""
        where = self.source
        if where is not None and self.line is not None:
            where = f"{where}:{self.line}"
        key = None if self.key is None else _cut(self.key, _MAX_KEY)
        head = ": ".join(part for part in (where, key) if part)
        text = f"{head}: {self.message}" if head else self.message
        if self.value is not None:
            text += f" (value {self.value})"
        if self.suggestion is not None:
            text += f"; did you mean {self.suggestion}?"
        return _escaped(text)


class SettingsError(Exception):
    """The settings cannot be used. Its text has one line for each problem, up to a limit."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [problem.render() for problem in self.problems[:_MAX_LINES]]
        if more := len(self.problems) - len(lines):
            lines.append(f"and {more} more problems")
        super().__init__("\n".join(lines))

    @classmethod
    def single(cls, message: str, *, source: object = None, line: int | None = None) -> Self:
        """An error with one problem that belongs to no key."""
        text = None if source is None else str(source)
        return cls([Problem(message, source=text, line=line)])


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like `word`, or None when nothing is close."""
    from difflib import get_close_matches

    matches = get_close_matches(word.lower(), list(candidates), n=1, cutoff=0.6)
    return matches[0] if matches else None


def shown(value: object) -> str:
    """A value as one short line of text that is safe to print on any terminal."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return printable(f'"{value}"')
    if isinstance(value, dict | list) and value:
        return "a list" if isinstance(value, list) else "a mapping"
    # Python refuses to write out numbers of many thousand digits.
    huge = isinstance(value, int) and value.bit_length() > 256
    return "a number of more than 77 digits" if huge else printable(str(value))


def printable(text: str) -> str:
    """Cut to a short line; what a terminal could take for a command is escaped."""
    return _escaped(_cut(text, _MAX_SHOWN))


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _escaped(text: str) -> str:
    return "".join(ch if ch.isprintable() else ch.encode("unicode_escape").decode() for ch in text)

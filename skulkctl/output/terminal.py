"""When to colour, what a state looks like, and how wide text is on a terminal.

Colour and symbols only repeat what a word already says. It must not know any command, and it must
not import rich: `drawing.py` does, for what a person looks at.
"""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Mapping
from typing import TextIO

_ANSI = {
    "problem": "31",
    "attention": "33",
    "ok": "32",
    "waiting": "34",
    "muted": "2",
    "strong": "1",
}
SYMBOLS = {"problem": "✖", "attention": "▲", "ok": "●", "waiting": "◌", "muted": "·"}
_WORDS = {
    "ok": ("ok", "ready", "running", "yes", "joined", "stored", "in use", "present"),
    "waiting": ("starting", "staging", "loading", "downloading", "queued", "changed"),
    "attention": ("warn", "expiring", "draining", "left", "no", "half", "evict next"),
    "problem": ("error", "fail", "failed", "NO ANSWER", "lost", "expired", "invalid"),
    "muted": ("skip", "idle"),
}
_ROLES = {word: role for role, words in _WORDS.items() for word in words}
_EIGHTHS = " ▏▎▍▌▋▊▉"


def wants_colour(when: str, environ: Mapping[str, str], is_terminal: bool) -> bool:
    """The flag wins, then NO_COLOR and TERM=dumb, then whether a person is looking."""
    if when != "auto":
        return when == "always"
    if environ.get("NO_COLOR") or environ.get("TERM") == "dumb":
        return False
    return is_terminal


def terminal_width(stream: TextIO) -> int | None:
    """How many cells a line may take; None when the stream is not a terminal."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def paint(text: str, role: str | None) -> str:
    """The text in the colour of its role; unchanged when it has none."""
    return f"\x1b[{_ANSI[role]}m{text}\x1b[0m" if role in _ANSI else text


def role_of(word: str) -> str | None:
    """The role of a state, by its word or by the first one: `failed 41%: no space`."""
    text = word.lstrip("●▲✖◌· ")
    return _ROLES.get(text) or _ROLES.get(text.partition(" ")[0])


def with_symbol(word: str) -> str:
    """`● ok`; unchanged when the word has no role."""
    role = role_of(word)
    return f"{SYMBOLS[role]} {word}" if role else word


def bar(fraction: float, cells: int = 8) -> str:
    """`███▌░░░░`, in eighths of a cell."""
    eighths = round(min(max(fraction, 0.0), 1.0) * cells * 8)
    filled = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return filled + "░" * (cells - len(filled))


def printable(text: str) -> str:
    """One safe line: control characters from the network must not reach a terminal."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else " " if char in "\t\r\n" else "?" for char in text
    )


def harmless(text: str) -> str:
    """Text of several lines without the control characters that could drive a terminal."""
    if text.isprintable():
        return text
    return "".join(
        "?" if unicodedata.category(char) == "Cc" and char not in "\t\n" else char for char in text
    )


def width(text: str) -> int:
    """Terminal cells the text takes: wide letters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def pad(text: str, cells: int, right: bool = False) -> str:
    """The text filled with blanks up to a number of cells."""
    blanks = " " * (cells - width(text))
    return blanks + text if right else text + blanks

"""Colours: the themes, and what the roles of drawn text look like in each of them.

The default palette is the one of Okabe and Ito, which people with any common colour blindness can
tell apart. A colour only repeats what a letter, symbol or pattern says.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rich.style import Style
from textual.color import Color
from textual.theme import Theme

DEFAULT = "skulk-dark"

THEMES = (
    Theme(
        name=DEFAULT, primary="#56b4e9", secondary="#7aa2c8", accent="#cc79a7", warning="#e69f00",
        error="#f4633a", success="#2fbf93", foreground="#d9dfe7", background="#0f1318",
        surface="#151b22", panel="#1d252e", dark=True,
    ),
    Theme(
        name="skulk-light", primary="#0067a5", secondary="#44617b", accent="#a0447a",
        warning="#9a5b00", error="#b3340f", success="#00724f", foreground="#1c232b",
        background="#fbfbf8", surface="#f1f1ec", panel="#e4e5df", dark=False,
    ),
    Theme(
        name="skulk-contrast", primary="#00ffff", secondary="#ffffff", accent="#ff80ff",
        warning="#ffff00", error="#ff5050", success="#00ff7f", foreground="#ffffff",
        background="#000000", surface="#000000", panel="#202020", dark=True,
    ),
)  # fmt: skip

_COLOURS = {
    "problem": "error",
    "attention": "warning",
    "ok": "success",
    "waiting": "primary",
    "accent": "primary",
    "start": "primary",
    "compute": "success",
    "wait": "warning",
    "error": "error",
    "cancel": "accent",
    "other": "secondary",
}
"""Roles, and the colour of the theme that each has."""
_BOLD = frozenset({"problem", "accent"})


class Palette:
    """The styles of the roles in one theme."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._background = Color.parse(variables["background"])
        self._foreground = Color.parse(variables["foreground"])
        self.style = lru_cache(maxsize=512)(self._style)

    def _style(self, role: str | None) -> Style:
        """Raises KeyError for a role that has no colour."""
        if role is None:
            return Style()
        if role.endswith("+"):
            return self.style(role[:-1] or None) + Style(reverse=True)
        if role.startswith("@"):
            return Style(
                color=self._background.hex6, bgcolor=self._colour(role[1:]).hex6, bold=True
            )
        left, slash, right = role.partition("/")
        if slash:
            return Style(color=self._colour(left).hex6, bgcolor=self._colour(right).hex6)
        plain = {"selected": Style(reverse=True), "strong": Style(bold=True)}
        return plain.get(role) or Style(color=self._colour(role).hex6, bold=role in _BOLD)

    def _colour(self, role: str) -> Color:
        if role in ("muted", "idle"):
            return self._foreground.blend(self._background, 0.45 if role == "muted" else 0.7)
        if role == "none":
            return self._background
        return Color.parse(self._variables[_COLOURS[role]])

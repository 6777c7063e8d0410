"""The help screen's key table, made from the live bindings so that it cannot lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.binding import Binding

if TYPE_CHECKING:
    from skulkctl.tui.timeline_app import TimelineApp

_NAMES = {
    "question_mark": "?", "colon": ":", "slash": "/", "exclamation_mark": "!", "plus": "+",
    "equals_sign": "=", "minus": "-", "comma": ",", "full_stop": ".", "left_square_bracket": "[",
    "right_square_bracket": "]", "ctrl+x": "^x", "ctrl+c": "^c", "ctrl+p": "^p",
}  # fmt: skip


def help_rows(app: TimelineApp) -> list[str]:
    """`key  what it does`, for every binding that works now."""
    rows: dict[str, str] = {}
    for holder in (app.screen, app):
        for binding in holder.BINDINGS:
            if isinstance(binding, Binding) and _works(app, binding):
                if binding.key.isdigit():
                    rows["1-9"] = "placement by number"
                    continue
                keys = " ".join(_NAMES.get(key, key) for key in binding.key.split(","))
                rows.setdefault(keys, binding.description)
    return [f"{keys:<12} {what}" for keys, what in rows.items()]


def _works(app: TimelineApp, binding: Binding) -> bool:
    action = binding.action.partition("(")[0]
    return app.check_action(action, ()) is True

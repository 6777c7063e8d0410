"""Small windows over a screen: help, a question before a change, raw text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Button, Static


def _plain(screen: Screen[Any]) -> bool:
    """Whether the terminal may have no lines to draw boxes with."""
    return bool(getattr(getattr(screen.app, "view", None), "ascii", False))


class TextScreen(ModalScreen[None]):
    """Text that can be scrolled: help, JSON, log lines."""

    CSS = """
    TextScreen { align: center middle; background: $background 60%; }
    TextScreen > VerticalScroll { width: 90%; height: 90%; border: solid; background: $background; }
    TextScreen.ascii > VerticalScroll { border: ascii; scrollbar-size-vertical: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "dismiss", "back", id="text.back"),
        Binding("g", "top", "top", id="text.top"),
        Binding("G", "end", "end", id="text.end"),
    ]

    def __init__(self, title: str, rows: Sequence[str]) -> None:
        super().__init__()
        self._title = title
        self._rows = rows

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = self._title
            yield Static("\n".join(self._rows), markup=False)

    def on_mount(self) -> None:
        self.set_class(_plain(self), "ascii")

    def action_top(self) -> None:
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def action_end(self) -> None:
        self.query_one(VerticalScroll).scroll_end(animate=False)


class ConfirmScreen(ModalScreen[bool]):
    """Asks before something is changed. The safe answer has the focus."""

    CSS = """
    ConfirmScreen { align: center middle; background: $background 60%; }
    ConfirmScreen > Vertical {
        width: 70; max-width: 95%; height: auto; border: solid $error; padding: 0 1;
        background: $background;
    }
    ConfirmScreen.ascii > Vertical { border: ascii $error; }
    ConfirmScreen Horizontal { height: auto; align-horizontal: right; }
    ConfirmScreen Button { margin-left: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "no", "no", id="confirm.no"),
        Binding("y", "yes", "yes", id="confirm.yes"),
        Binding("left,right", "app.focus_next", "other", show=False, id="confirm.other"),
    ]

    def __init__(self, what: str, why: str, command: str) -> None:
        super().__init__()
        self._what = what
        self._why = why
        self._command = command

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = self._what
            yield Static(f"{self._why}\n\nsame: {self._command}\n", markup=False)
            with Horizontal():
                yield Button("Cancel (esc)", id="no", compact=True)
                yield Button("Do it (y)", id="yes", variant="error", compact=True)

    def on_mount(self) -> None:
        self.set_class(_plain(self), "ascii")
        self.query_one("#no").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_no(self) -> None:
        self.dismiss(False)

    def action_yes(self) -> None:
        self.dismiss(True)

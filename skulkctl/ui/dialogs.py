"""Small windows over a page: text to read, and a question before a change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, OptionList, Static

if TYPE_CHECKING:
    from skulkctl.ui.app import SkulkApp

T = TypeVar("T")


class Dialog(ModalScreen[T]):
    """A window that has no lines of box drawing where the terminal may have none."""

    def on_mount(self) -> None:
        self.set_class(cast("SkulkApp", self.app).view.ascii, "ascii")


class TextScreen(Dialog[None]):
    """Text that can be scrolled: letters, JSON, log lines."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "back", id="text.back"),
        Binding("g", "top", "top", id="text.top"),
        Binding("G", "end", "end", id="text.end"),
    ]

    def __init__(self, title: str, rows: Sequence[str]) -> None:
        super().__init__()
        self._title = title
        self._rows = rows

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog tall") as box:
            box.border_title = self._title
            box.border_subtitle = "esc closes"
            yield Static("\n".join(self._rows), markup=False)

    def action_top(self) -> None:
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def action_end(self) -> None:
        self.query_one(VerticalScroll).scroll_end(animate=False)


class ChoiceScreen(Dialog[str]):
    """One of several; None when it is left without a choice."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "back", id="choice.back")]

    def __init__(self, title: str, choices: Sequence[str]) -> None:
        super().__init__()
        self._title = title
        self._choices = choices

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = self._title
            box.border_subtitle = "enter chooses, esc closes"
            yield OptionList(*self._choices, markup=False, compact=True)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._choices[event.option_index])


class ConfirmScreen(Dialog[bool]):
    """Asks before something is changed. The safe answer has the focus.

    With a `name`, what would be lost is so much that the name has to be typed.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "no", "no", id="confirm.no"),
        Binding("n", "no", "no", show=False, id="confirm.n"),
        Binding("y", "yes", "yes", show=False, id="confirm.yes"),
        Binding("left,right", "app.focus_next", "other", show=False, id="confirm.other"),
    ]

    def __init__(self, what: str, why: str, command: str, name: str | None = None) -> None:
        super().__init__()
        self._what = what
        self._why = why
        self._command = command
        self._name = name

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog danger") as box:
            box.border_title = self._what
            same = f"same: {self._command}"
            yield Static(f"{self._why}\n\n{same}\n", markup=False)
            if self._name is not None:
                yield Static(f"Type {self._name} to continue:", markup=False)
                yield Input(id="name", compact=True)
            with Horizontal(classes="buttons"):
                yield Button("Cancel (esc)", id="no", compact=True)
                label = "Do it (y)" if self._name is None else "Do it"
                yield Button(label, id="yes", variant="error", compact=True)

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#no" if self._name is None else "#name").focus()

    def _has_name(self) -> bool:
        return self._name is None or self.query_one("#name", Input).value.strip() == self._name

    def on_button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "no":
            self.dismiss(False)
        else:
            self.action_yes()

    def on_input_submitted(self) -> None:
        self.action_yes()

    def action_no(self) -> None:
        self.dismiss(False)

    def action_yes(self) -> None:
        if self._has_name():
            self.dismiss(True)
        else:
            self.notify(f"that is not {self._name}", severity="warning", markup=False)


def confirm(app: Any, screen: ConfirmScreen, then: Any) -> None:
    """Run `then()` in the background when the user agrees."""

    def decided(agreed: bool | None) -> None:
        if agreed:
            app.run_worker(then(), group="act")

    app.push_screen(screen, decided)

"""An answer while it arrives: the text on stdout, everything else muted or on stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from skulkctl.chat.generation import ReaderGone
from skulkctl.daemon.chat import Piece, Started
from skulkctl.output.messages import Messages
from skulkctl.output.progress import Part, Progress
from skulkctl.output.stdout import write_now
from skulkctl.output.terminal import harmless, paint
from skulkd.wire.chat import PrefillProgressChunk

if TYPE_CHECKING:
    from skulkctl.daemon.chat import ChatItem


class ReplyScreen:
    """Give it every item; call `finish` at the end, whatever the end was.

    On a terminal nothing in the answer can drive it. Reasoning is shown before the answer with
    `show_reasoning`; otherwise on stderr, and only with -v.
    """

    def __init__(
        self,
        messages: Messages,
        *,
        terminal: bool,
        colour: bool = False,
        show_reasoning: bool = False,
    ) -> None:
        self._messages = messages
        self._terminal = terminal
        self._colour = colour
        self._show_reasoning = show_reasoning
        self._progress = Progress(messages.quiet, on_pipes=False)
        self._reasoning_pieces = 0
        self._is_reasoning = False
        self._last = ""

    def show(self, item: ChatItem) -> None:
        """Raises ReaderGone when stdout has been closed."""
        if isinstance(item, Started):
            self._progress.show("waiting", "waiting for the model")
        elif isinstance(item, PrefillProgressChunk):
            done, total = item.processed_tokens, item.total_tokens
            part = Part("prompt", "reading", done, total, "tokens")
            self._progress.show("prefill", f"prompt: {done} of {total} tokens", [part])
        elif isinstance(item, Piece):
            if item.reasoning:
                self._write_reasoning(item.reasoning)
            if item.text:
                self._write_answer(item.text)

    def finish(self) -> None:
        """End the line that the answer stopped in."""
        self._progress.clear()
        self._end_reasoning()
        if self._last and not self._last.endswith("\n"):
            self._write("\n")

    def _write_answer(self, text: str) -> None:
        self._progress.clear()
        self._end_reasoning()
        self._write(harmless(text) if self._terminal else text)

    def _write_reasoning(self, text: str) -> None:
        self._reasoning_pieces += 1
        if self._show_reasoning:
            self._progress.clear()
            if not self._is_reasoning:
                self._write("thinking: " if not self._colour else "")
            self._write(paint(harmless(text), "muted") if self._colour else harmless(text))
        elif self._messages.verbose:
            self._progress.clear()
            sys.stderr.write(harmless(text))
            sys.stderr.flush()
        else:
            self._progress.show("thinking", f"thinking: {self._reasoning_pieces} pieces")
        self._is_reasoning = True

    def _end_reasoning(self) -> None:
        if not self._is_reasoning:
            return
        self._is_reasoning = False
        if self._show_reasoning:
            self._write("\n\n")
            self._last = ""
        elif self._messages.verbose:
            sys.stderr.write("\n")
            sys.stderr.flush()

    def _write(self, text: str) -> None:
        if not text:
            return
        self._last = text
        if not write_now(text):
            raise ReaderGone

"""An answer while it comes: the text on stdout, everything else muted or on stderr."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from skulkctl.asking import ReaderGone
from skulkctl.chat_events import ChatEvent, Piece, Prefill, Reply, Started
from skulkctl.progress import ProgressLine
from skulkctl.screen import harmless, paint
from skulkctl.stdout import write_now
from skulkctl.talk import Talk


@dataclass(frozen=True)
class Manner:
    """How an answer is shown."""

    terminal: bool
    """Someone looks at stdout: nothing in the answer may drive the terminal."""
    colour: bool = False
    thinking_inline: bool = False
    """Thinking goes, muted, before the answer; otherwise to stderr, and only with -v."""


class ReplyScreen:
    """Give it every event; call `finish` at the end, whatever the end was."""

    def __init__(self, manner: Manner, talk: Talk) -> None:
        self._manner = manner
        self._talk = talk
        self._progress = ProgressLine(talk.quiet, on_pipes=False)
        self._thoughts = 0
        self._last = ""
        self._thinking = False

    def show(self, event: ChatEvent) -> None:
        """Raises ReaderGone when stdout has been closed."""
        if isinstance(event, Started):
            self._progress.show("waiting", "waiting for the model")
        elif isinstance(event, Prefill):
            done, total = event.done_tokens, event.total_tokens
            self._progress.show("prefill", f"prompt: {done} of {total} tokens", done / total)
        elif isinstance(event, Piece):
            if event.reasoning:
                self._think(event.reasoning)
            if event.text:
                self._say(event.text)

    def show_whole(self, reply: Reply) -> None:
        """An answer that came in one piece."""
        self.show(Piece(reasoning=reply.reasoning))
        self.show(Piece(reply.text))

    def finish(self) -> None:
        """End the line that the answer stopped in."""
        self._progress.clear()
        self._stop_thinking()
        if self._last and not self._last.endswith("\n"):
            self._put("\n")

    def _say(self, text: str) -> None:
        self._progress.clear()
        self._stop_thinking()
        self._put(harmless(text) if self._manner.terminal else text)

    def _think(self, text: str) -> None:
        self._thoughts += 1
        if self._manner.thinking_inline:
            self._progress.clear()
            if not self._thinking:
                self._put("thinking: " if not self._manner.colour else "")
            self._put(paint(harmless(text), "muted") if self._manner.colour else harmless(text))
        elif self._talk.verbose:
            self._progress.clear()
            sys.stderr.write(harmless(text))
            sys.stderr.flush()
        else:
            self._progress.show("thinking", f"thinking: {self._thoughts} pieces")
        self._thinking = True

    def _stop_thinking(self) -> None:
        if not self._thinking:
            return
        self._thinking = False
        if self._manner.thinking_inline:
            self._put("\n\n")
            self._last = ""
        elif self._talk.verbose:
            sys.stderr.write("\n")
            sys.stderr.flush()

    def _put(self, text: str) -> None:
        if not text:
            return
        self._last = text
        if not write_now(text):
            raise ReaderGone

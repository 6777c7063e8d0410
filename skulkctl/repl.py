"""The interactive chat: a prompt, streaming answers, a few commands that begin with a slash.

Ctrl-C cancels an answer and never the program; ctrl-D leaves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from skulkctl.asking import Question, ReaderGone, ask
from skulkctl.chat_events import OVER_LIMIT, Reply, stats_text
from skulkctl.errors import CliError
from skulkctl.exits import ExitCode
from skulkctl.reply_screen import Manner, ReplyScreen
from skulkctl.screen import printable
from skulkctl.typed_lines import TypedLines

if TYPE_CHECKING:
    from skulkctl.conversation import Conversation
    from skulkctl.invocation import Invocation

PROMPT = ">>> "
ABOUT = {
    "/help": "this list",
    "/system [TEXT]": "show or set what the model is told first; - takes it away",
    "/reset": "forget what has been said",
    "/stats": "speed and size of the last answer",
    "/save FILE": "write the conversation; as JSON when FILE ends in .json",
}
KEYS = "ctrl-C cancels the answer, ctrl-D leaves; a line that begins with a blank is sent as it is"


class Repl:
    """One interactive conversation."""

    def __init__(
        self, call: Invocation, talk_about: Conversation, limit_s: float | None, lines: TypedLines
    ) -> None:
        self._call = call
        self._conversation = talk_about
        self._limit_s = limit_s
        self._lines = lines
        self._last: Reply | None = None
        self._commands: dict[str, Callable[[str], None]] = {
            "/help": self._help,
            "/system": self._system,
            "/reset": self._reset,
            "/stats": self._stats,
            "/save": self._save,
        }

    def run(self) -> int:
        """Until ctrl-D; a failed answer is reported and does not end it."""
        self._tell(f"{self._conversation.model_id}: /help lists commands, ctrl-D leaves")
        while True:
            try:
                self._take(self._lines.ask(PROMPT))
            except EOFError:
                sys.stdout.write("\n")
                return ExitCode.DONE
            except ReaderGone:
                return ExitCode.DONE
            except KeyboardInterrupt:
                sys.stdout.write("\n")
                self._tell("ctrl-D leaves")

    def _take(self, line: str) -> None:
        if line.startswith("/"):
            self._command(line)
        elif line.strip():
            self._ask(line.strip())

    def _ask(self, prompt: str) -> None:
        conversation = self._conversation
        reply = Reply(conversation.model_id)
        question = Question(conversation.model_id, conversation.request(prompt), self._limit_s)
        colour = self._call.style.colour
        screen = ReplyScreen(
            Manner(terminal=True, colour=colour, thinking_inline=True), self._call.talk
        )
        try:
            ask(self._call.client, question, reply, screen.show)
            if not conversation.stream:
                screen.show_whole(reply)
        except KeyboardInterrupt:
            screen.finish()
            self._tell("cancelled")
        except CliError as error:
            screen.finish()
            self._call.talk.error(error)
            if any(OVER_LIMIT in line for line in error.why):
                self._tell("/reset forgets what has been said")
        else:
            screen.finish()
        self._last = reply
        conversation.heard(prompt, reply.text)
        self._call.talk.detail(stats_text(reply))

    def _command(self, line: str) -> None:
        name, _, rest = line.strip().partition(" ")
        command = self._commands.get(name)
        if command is None:
            self._tell(f"there is no {name}; /help lists what there is")
        else:
            command(rest.strip())

    def _help(self, rest: str) -> None:
        del rest
        width = max(len(name) for name in ABOUT)
        for name, about in ABOUT.items():
            self._tell(f"{name:<{width}}  {about}")
        self._tell(KEYS)

    def _system(self, rest: str) -> None:
        if rest:
            self._conversation.system = None if rest == "-" else rest
        self._tell(f"system: {self._conversation.system or 'none'}")

    def _reset(self, rest: str) -> None:
        del rest
        turns = len(self._conversation.turns) // 2
        self._conversation.reset()
        self._tell(f"forgotten: {turns} answer{'' if turns == 1 else 's'}")

    def _stats(self, rest: str) -> None:
        del rest
        self._tell(stats_text(self._last) if self._last else "there is no answer yet")

    def _save(self, rest: str) -> None:
        if not rest:
            self._tell("/save FILE: give the name of a file")
            return
        path = Path(rest).expanduser()
        conversation = self._conversation
        text = conversation.as_json() if path.suffix == ".json" else conversation.as_text()
        try:
            # What was said may be private, and a file that is there may be another conversation.
            path.touch(mode=0o600, exist_ok=False)
            path.write_text(text, encoding="utf-8")
        except FileExistsError:
            self._tell(f"{path} is there already; it is left as it is")
        except OSError as error:
            self._tell(f"cannot write {path}: {error.strerror or error}")
        else:
            self._tell(f"saved to {path}")

    def _tell(self, text: str) -> None:
        """A line that is not part of any answer."""
        sys.stderr.write(f"{printable(text)}\n")
        sys.stderr.flush()

"""The interactive chat: a prompt, streaming answers, a few commands that begin with a slash.

Ctrl-C cancels an answer and never the program; ctrl-D leaves.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from skulkctl.chat.generation import ReaderGone, generate
from skulkctl.chat.reply import Reply, stats_text
from skulkctl.chat.screen import ReplyScreen
from skulkctl.daemon.chat import CONTEXT_LENGTH_EXCEEDED
from skulkctl.errors import CliError
from skulkctl.exits import ExitCode
from skulkctl.output.terminal import printable
from skulkd.settings.files import make_private_dir, write_atomic

if TYPE_CHECKING:
    from skulkctl.chat.conversation import Conversation
    from skulkctl.cli import Invocation

PROMPT = ">>> "
ABOUT = {
    "/help": "list the commands",
    "/system [TEXT]": "show or set the system prompt; - removes it",
    "/reset": "clear the conversation",
    "/stats": "show speed and size of the last response",
    "/save FILE": "write the conversation; as JSON when FILE ends in .json",
}
KEYS = "Ctrl-C cancels the response, Ctrl-D quits; a line that starts with a space is sent as it is"
_KEPT_LINES = 500


class Repl:
    """One interactive conversation."""

    def __init__(
        self,
        call: Invocation,
        conversation: Conversation,
        limit_s: float | None,
        lines: PromptLines,
    ) -> None:
        self._call = call
        self._conversation = conversation
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
        _print(f"{self._conversation.model_id}: /help lists commands, Ctrl-D quits")
        while True:
            try:
                self._handle(self._lines.read(PROMPT))
            except EOFError:
                sys.stdout.write("\n")
                return ExitCode.DONE
            except ReaderGone:
                return ExitCode.DONE
            except KeyboardInterrupt:
                sys.stdout.write("\n")
                _print("Ctrl-D quits")

    def _handle(self, line: str) -> None:
        if line.startswith("/"):
            self._command(line)
        elif line.strip():
            self._ask(line.strip())

    def _ask(self, prompt: str) -> None:
        conversation = self._conversation
        reply = Reply(conversation.model_id)
        screen = ReplyScreen(
            self._call.messages, terminal=True, colour=self._call.style.colour, show_reasoning=True
        )
        try:
            request = conversation.request(prompt)
            generate(self._call.daemon, request, reply, screen.show, self._limit_s)
        except KeyboardInterrupt:
            screen.finish()
            _print("cancelled")
        except CliError as error:
            screen.finish()
            self._call.messages.error(error)
            if error.code == CONTEXT_LENGTH_EXCEEDED:
                _print("/reset clears the conversation")
        else:
            screen.finish()
        self._last = reply
        conversation.add_turn(prompt, reply.text)
        self._call.messages.detail(stats_text(reply))

    def _command(self, line: str) -> None:
        name, _, rest = line.strip().partition(" ")
        command = self._commands.get(name)
        if command is None:
            _print(f"unknown command {name}; /help lists the commands")
        else:
            command(rest.strip())

    def _help(self, rest: str) -> None:
        del rest
        width = max(len(name) for name in ABOUT)
        for name, about in ABOUT.items():
            _print(f"{name:<{width}}  {about}")
        _print(KEYS)

    def _system(self, rest: str) -> None:
        if rest:
            self._conversation.system = None if rest == "-" else rest
        _print(f"system: {self._conversation.system or 'none'}")

    def _reset(self, rest: str) -> None:
        del rest
        turns = len(self._conversation.turns) // 2
        self._conversation.clear()
        _print(f"cleared: {turns} answer{'' if turns == 1 else 's'}")

    def _stats(self, rest: str) -> None:
        del rest
        _print(stats_text(self._last) if self._last else "there is no response yet")

    def _save(self, rest: str) -> None:
        if not rest:
            _print("/save FILE: a file name is required")
            return
        path = Path(rest).expanduser()
        conversation = self._conversation
        text = conversation.as_json() if path.suffix == ".json" else conversation.as_text()
        try:
            # Conversations may be private, and a file that exists may be another one.
            path.touch(mode=0o600, exist_ok=False)
            path.write_text(text, encoding="utf-8")
        except FileExistsError:
            _print(f"{path} already exists; it was not overwritten")
        except OSError as error:
            _print(f"cannot write {path}: {error.strerror or error}")
        else:
            _print(f"saved to {path}")


class PromptLines:
    """Lines typed on the terminal, with a history file that is private and outlives the program.

    Without the readline module there is no editing and no history. The file holds one JSON string
    a line.
    """

    def __init__(self, history: Path) -> None:
        self._path = history
        self._lines = _read_history(history)
        try:
            import readline
        except ImportError:
            return
        for line in self._lines:
            readline.add_history(line)

    def read(self, prompt: str) -> str:
        """The next line. Raises EOFError at ctrl-D and KeyboardInterrupt at ctrl-C."""
        line = input(prompt)
        if line.strip() and (not self._lines or self._lines[-1] != line):
            self._lines = [*self._lines, line][-_KEPT_LINES:]
            self._save()
        return line

    def _save(self) -> None:
        data = "".join(f"{json.dumps(line)}\n" for line in self._lines)
        try:
            make_private_dir(self._path.parent)
            write_atomic(self._path, data.encode(), mode=0o600)
        except OSError:
            return  # without a writable home there is no history, but there is a chat


def _read_history(path: Path) -> list[str]:
    try:
        raw = path.read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in raw]
    except (OSError, ValueError):
        return []
    return [line for line in found if isinstance(line, str)][-_KEPT_LINES:]


def _print(text: str) -> None:
    """A line that is not part of any answer."""
    sys.stderr.write(f"{printable(text)}\n")
    sys.stderr.flush()

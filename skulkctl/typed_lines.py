"""Lines that a person types, with editing and a history that outlives the program.

The history file holds one JSON string a line and is private. It must not know what is typed.
"""

from __future__ import annotations

import json
from pathlib import Path

from skulkd.settings.files import make_private_dir, write_atomic

_KEEP = 500


class TypedLines:
    """Reads from the terminal. Without the readline module there is no editing, no history."""

    def __init__(self, history: Path) -> None:
        self._path = history
        self._lines = _read(history)
        try:
            import readline
        except ImportError:
            return
        for line in self._lines:
            readline.add_history(line)

    def ask(self, prompt: str) -> str:
        """The next line. Raises EOFError at ctrl-D and KeyboardInterrupt at ctrl-C."""
        line = input(prompt)
        if line.strip() and (not self._lines or self._lines[-1] != line):
            self._lines = [*self._lines, line][-_KEEP:]
            self._save()
        return line

    def _save(self) -> None:
        data = "".join(f"{json.dumps(line)}\n" for line in self._lines)
        try:
            make_private_dir(self._path.parent)
            write_atomic(self._path, data.encode(), mode=0o600)
        except OSError:
            return  # a home that cannot be written only means that nothing is remembered


def _read(path: Path) -> list[str]:
    try:
        raw = path.read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in raw]
    except (OSError, ValueError):
        return []
    return [line for line in found if isinstance(line, str)][-_KEEP:]

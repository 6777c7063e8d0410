"""Work on model files in a child process: `python -m skulkd.store`, which writes JSON lines.

The child inherits the environment, so its files land where this machine's daemon looks.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING

from skulkctl.errors import CliError, NotFound, Refused
from skulkctl.progress import ProgressLine, Transfer
from skulkctl.views.read import Document, integer, mapping, text

if TYPE_CHECKING:
    from pathlib import Path

    from skulkctl.talk import Talk

MODULE = "skulkd.store"
_STOP_S = 10.0
_TAIL_BYTES = 4000
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_REFUSALS = ("unsupported_model", "bad_model_id", "model_exists", "no_space", "broken_model")
_LABELS = {
    "download": "downloading",
    "unpack": "unpacking",
    "convert": "converting",
    "copy": "copying",
}


def run_store(
    arguments: Sequence[str], what: str, talk: Talk, models: Path | None = None
) -> Document:
    """The `done` event. Raises CliError saying why there is none; ctrl-C stops the child.

    `models` is where the model goes, instead of into this machine's models directory.
    """
    environ = None if models is None else {**os.environ, "SKULK_MODELS_DIR": str(models)}
    command = [sys.executable, "-m", MODULE, *arguments]
    talk.detail(f"running {' '.join(command)}")
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            env=environ,
        )
        try:
            last = _follow(child, talk)
            code = child.wait(_STOP_S)
        finally:
            _stop(child)
        if text(last, "event") == "done":
            return last
        raise _error(what, last, code, _tail(said))


def _follow(child: subprocess.Popen[bytes], talk: Talk) -> Document:
    """Show the progress; the last event that is not one, or nothing."""
    last: Document = {}
    transfer = Transfer()
    with ProgressLine(talk.quiet) as line:
        for event in _events(child.stdout):
            if text(event, "event") != "progress":
                last = event
                continue
            phase = text(event, "phase") or "working"
            done, total = integer(event, "done_bytes") or 0, integer(event, "total_bytes")
            label = _LABELS.get(phase, phase)
            line.show(phase, transfer.text(label, done, total), done / total if total else None)
    return last


def _events(lines: IO[bytes] | None) -> Iterator[Document]:
    for line in lines or ():
        try:
            yield mapping(json.loads(line))
        except ValueError:
            continue  # not for us; what matters is said again at the end


def _stop(child: subprocess.Popen[bytes]) -> None:
    """Leave no child behind; it tidies up what it has begun."""
    if child.stdout is not None:
        child.stdout.close()
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _tail(said: IO[bytes]) -> str:
    end = said.seek(0, 2)
    said.seek(max(0, end - _TAIL_BYTES))
    return said.read().decode("utf-8", "replace")


def _error(what: str, event: Document, code: int, said: str) -> CliError:
    message = text(event, "message")
    if message:
        hint = text(event, "hint")
        kind = text(event, "kind") or ""
        error = Refused if kind in _REFUSALS else NotFound if kind == "unknown_model" else CliError
        why = [line for line in message.splitlines() if line.strip()]
        return error(f"cannot {what}", *why, hints=[hint] if hint else [])
    missing = _NO_MODULE.search(said)
    if missing:
        return CliError(
            f"cannot {what}",
            f"the node extra is not installed here: {missing[1]} is missing",
            hints=[f"{sys.executable} -m pip install 'skulk-toolkit[node]'"],
        )
    last_words = [line for line in said.splitlines() if line.strip()][-1:]
    return CliError(f"cannot {what}", f"the import ended with {code}", *last_words)

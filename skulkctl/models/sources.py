"""Models that are made, downloaded or imported on this machine, by `python -m skulkd.store`.

The child inherits the environment, so its files land where this machine's daemon looks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from skulkctl.daemon.codes import MODEL_EXISTS, UNKNOWN_MODEL
from skulkctl.errors import CliError, NotFound, Refused
from skulkctl.output.progress import Part, Progress, Transfer

if TYPE_CHECKING:
    from skulkctl.cli import Invocation
    from skulkctl.output.messages import Messages
    from skulkd.wire.model_import import ImportDone, ImportEvent, ImportFailed

MODULE = "skulkd.store"
_STOP_S = 10.0
_TAIL_BYTES = 4000
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_REFUSALS = ("unsupported_model", "bad_model_id", MODEL_EXISTS, "no_space", "broken_model")
_LABELS = {
    "download": "downloading",
    "unpack": "unpacking",
    "convert": "converting",
    "copy": "copying",
}


@dataclass(frozen=True)
class Source:
    """How a model is made here. Its id may be known only when it is."""

    arguments: Sequence[str]
    what: str
    done: str
    model_id: str | None = None
    replaces: bool = False


def bring_here(call: Invocation, source: Source, models: Path | None = None) -> tuple[str, Path]:
    """Id and directory of the model, in this machine's models directory or in `models`."""
    done = run_store(source.arguments, source.what, call.messages, models)
    return done.model_id, Path(done.path)


def run_store(
    arguments: Sequence[str], what: str, messages: Messages, models: Path | None = None
) -> ImportDone:
    """What the child made. Raises CliError saying why it did not; ctrl-C stops the child.

    `models` is where the model goes, instead of into this machine's models directory.
    """
    from skulkd.wire.model_import import ImportDone, ImportFailed

    environ = None if models is None else {**os.environ, "SKULK_MODELS_DIR": str(models)}
    command = [sys.executable, "-m", MODULE, *arguments]
    messages.detail(f"running {' '.join(command)}")
    with tempfile.TemporaryFile() as stderr:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environ,
        )
        try:
            last = _follow(child, messages)
            code = child.wait(_STOP_S)
        finally:
            _stop(child)
        if isinstance(last, ImportDone):
            return last
        if isinstance(last, ImportFailed):
            raise _refused(what, last)
        raise _died(what, code, _tail(stderr))


def _follow(child: subprocess.Popen[bytes], messages: Messages) -> ImportEvent | None:
    """Show the progress; the last event that is not one."""
    from skulkd.wire.model_import import ImportProgress

    last: ImportEvent | None = None
    transfer = Transfer()
    with Progress(messages.quiet) as line:
        for event in _events(child.stdout):
            if not isinstance(event, ImportProgress):
                last = event
                continue
            done, total = event.done_bytes, event.total_bytes
            label = _LABELS.get(event.phase, event.phase)
            line.show(
                event.phase,
                transfer.text(label, done, total),
                [Part("this machine", label, done, total)],
            )
    return last


def _events(lines: IO[bytes] | None) -> Iterator[ImportEvent]:
    from pydantic import TypeAdapter, ValidationError

    from skulkd.wire.model_import import ImportEvent

    adapter: TypeAdapter[ImportEvent] = TypeAdapter(ImportEvent)
    for line in lines or ():
        try:
            yield adapter.validate_json(line)
        except ValidationError:
            continue  # a library printed it; the last event says what matters


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


def _tail(stderr: IO[bytes]) -> str:
    end = stderr.seek(0, 2)
    stderr.seek(max(0, end - _TAIL_BYTES))
    return stderr.read().decode("utf-8", "replace")


def _refused(what: str, failed: ImportFailed) -> CliError:
    """What the child says about its failure."""
    kind: type[CliError] = CliError
    if failed.kind in _REFUSALS:
        kind = Refused
    elif failed.kind == UNKNOWN_MODEL:
        kind = NotFound
    why = [line for line in failed.message.splitlines() if line.strip()]
    return kind(f"cannot {what}", *why, hints=[failed.hint] if failed.hint else [])


def _died(what: str, code: int, stderr: str) -> CliError:
    """The child ended without an event."""
    missing = _NO_MODULE.search(stderr)
    if missing:
        return CliError(
            f"cannot {what}",
            f"the node extra is not installed here: {missing[1]} is missing",
            hints=[f"{sys.executable} -m pip install 'skulk-toolkit[node]'"],
        )
    last_words = [line for line in stderr.splitlines() if line.strip()][-1:]
    return CliError(f"cannot {what}", f"the import process exited with {code}", *last_words)

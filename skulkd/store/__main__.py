"""`python -m skulkd.store`: imports as a child process, with JSON lines on standard output.

Each line is an object with `event`: `progress`, then one `done` or `error`. Exit status 0, 1, or
2 for a wrong command line. Must not print anything else there.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from skulkd.settings.files import PRIVATE_UMASK
from skulkd.settings.paths import Paths, find_paths
from skulkd.settings.problems import SettingsError
from skulkd.store.errors import BrokenModelError, StoreError
from skulkd.store.model_ids import suggest_model_id
from skulkd.wire.model_import import DescribeDone, ImportDone, ImportFailed, ImportProgress

_INTERVAL_S = 0.1


class JsonLines:
    """Writes events; progress at most ten times a second, and always the last of a phase."""

    def __init__(self) -> None:
        self._last_s = -_INTERVAL_S

    def progress(self, phase: str, done_bytes: int, total_bytes: int | None, item: str) -> None:
        now_s = time.monotonic()
        if done_bytes == total_bytes or now_s - self._last_s >= _INTERVAL_S:
            self._last_s = now_s
            self.write(
                ImportProgress(
                    phase=phase, done_bytes=done_bytes, total_bytes=total_bytes, item=item
                )
            )

    def write(self, event: ImportProgress | ImportDone | ImportFailed | DescribeDone) -> None:
        try:
            sys.stdout.write(event.model_dump_json() + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader is gone. Python's own flush at exit must not fail a second time.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(1) from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status."""
    os.umask(PRIVATE_UMASK)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    options = _parser().parse_args(arguments)
    lines = JsonLines()
    try:
        if options.command == "describe":
            return _describe(options.id, lines)
        model_id, path = _run(options, find_paths(os.environ), lines)
    except StoreError as error:
        lines.write(ImportFailed(kind=error.kind, message=error.message, hint=error.hint))
        return 1
    except SettingsError as error:
        lines.write(ImportFailed(kind="settings", message=str(error)))
        return 1
    lines.write(ImportDone(model_id=model_id, path=str(path)))
    return 0


def _run(options: argparse.Namespace, paths: Paths, lines: JsonLines) -> tuple[str, Path]:
    if options.command == "pull" and options.what == "tiny":
        from skulkd.store.imports.tiny_model import TINY_MODEL_ID, make_tiny_model

        return TINY_MODEL_ID, make_tiny_model(paths.models)
    if options.command == "fetch":
        from skulkd.store.hub.client import fetch_model

        root = options.into or paths.models
        path = fetch_model(
            options.id, root, os.environ, lines.progress, gguf_file=options.gguf_file
        )
        return options.id, path
    if options.command == "pull" and options.what == "demo-embed":
        from skulkd.store.imports.demo_embedding import EMBEDDING_MODEL_ID, pull_embedding

        path = pull_embedding(paths, os.environ, report=lines.progress)
        return EMBEDDING_MODEL_ID, path
    if options.command == "pull":
        from skulkd.store.imports.demo_model import DEMO_MODEL_ID, pull_demo

        report = lines.progress
        return DEMO_MODEL_ID, pull_demo(paths, os.environ, packed=options.packed, report=report)
    return _import(options, paths, lines)


def _describe(model_id: str, lines: JsonLines) -> int:
    from skulkd.store.hub.client import describe_model

    card = describe_model(model_id, os.environ)
    lines.write(DescribeDone(model_id=model_id, card=card.model_dump(mode="json")))
    return 0


def _import(options: argparse.Namespace, paths: Paths, lines: JsonLines) -> tuple[str, Path]:
    source: Path = options.path
    model_id = options.id or suggest_model_id(source.absolute())
    if source.is_dir():
        from skulkd.store.imports.directory_import import import_directory

        path = import_directory(
            source, paths.models, model_id, replace=options.replace, report=lines.progress
        )
    elif source.is_file():
        from skulkd.store.imports.gguf_import import import_gguf

        path = import_gguf(
            source,
            paths.models,
            model_id,
            packed=options.packed,
            replace=options.replace,
            report=lines.progress,
        )
    else:
        raise BrokenModelError(f"{source} is neither a file nor a directory")
    return model_id, path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m skulkd.store", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    bring = commands.add_parser("import", help="a GGUF file or an mlx-lm directory")
    bring.add_argument("path", type=Path)
    bring.add_argument("--id", help="org/name; made from the path when not given")
    bring.add_argument("--replace", action="store_true", help="when the id is taken")
    pull = commands.add_parser("pull", help="a demo model, or the generated tiny one")
    pull.add_argument("what", choices=["demo", "demo-embed", "tiny"])
    fetch = commands.add_parser("fetch", help="a model from a Hugging Face hub")
    fetch.add_argument("id", help="org/name")
    fetch.add_argument("--into", type=Path, help="directory of models; this machine's own if not")
    fetch.add_argument("--gguf-file", help="only this file of a GGUF repository")
    describe = commands.add_parser("describe", help="the card of a model on a Hugging Face hub")
    describe.add_argument("id", help="org/name")
    for command in (bring, pull):
        command.add_argument("--packed", action="store_true", help="keep 4- and 8-bit weights")
    return parser


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    # SystemExit runs the clean-up that the default action would skip.
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())

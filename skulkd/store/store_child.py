"""`python -m skulkd.store` as a child of the daemon, which must not import what it needs."""

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

STOP_S = 2.0
LINE_LIMIT = 1 << 20


async def child_events(
    arguments: Sequence[str], environ: Mapping[str, str], token: str | None
) -> AsyncGenerator[dict[str, Any], None]:
    """The events it writes. Close the generator to end the child; which never outlives it."""
    environ = dict(environ) | ({"HF_TOKEN": token} if token else {})
    environ["PYTHONPATH"] = ":".join(path for path in sys.path if path)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "skulkd.store", *arguments,
        stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=environ, limit=LINE_LIMIT,
    )  # fmt: skip
    try:
        if child.stdout is not None:
            async for line in child.stdout:
                yield _event(line)
    finally:
        await _end(child)


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


async def _end(child: Process) -> None:
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        try:
            await asyncio.wait_for(child.wait(), STOP_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()

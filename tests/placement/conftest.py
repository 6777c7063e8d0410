"""A client and a `skulkctl` for the daemon that a test calls `node`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from skulkd.api.services import Services
from tests.cli.conftest import Cli, Result, cli, home
from tests.placement.a_cluster import Client, asked

__all__ = ["cli", "home"]
Run = Callable[..., Awaitable[Result]]


@pytest.fixture
async def client(
    node: Services, home: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Client]:
    async with asked(node) as client:
        monkeypatch.setenv("SKULK_ENDPOINT", client.url)
        yield client


@pytest.fixture
def run(cli: Cli) -> Run:
    """skulkctl in a thread: the daemon is in this one's loop, and must not be blocked."""

    async def in_thread(*arguments: str) -> Result:
        return await asyncio.to_thread(cli, *arguments)

    return in_thread

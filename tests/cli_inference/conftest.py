"""Fixtures of the inference commands: those of the CLI, and a node that streams answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import cli, home, process
from tests.cli_inference.model_node import ModelNode, model_node

__all__ = ["cli", "home", "node", "process"]


@pytest.fixture
def node(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelNode]:
    """A node with one ready model, which skulkctl asks by default."""
    started = model_node()
    started.start()
    monkeypatch.setenv("SKULK_ENDPOINT", started.url)
    try:
        yield started
    finally:
        started.stop()

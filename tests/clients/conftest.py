"""One daemon with a tiny chat model and a tiny encoder, and a hub, for all clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skulkd.store.imports.tiny_model import make_tiny_model
from tests.clients.checks import HUB_MODEL
from tests.embedding.models import ENCODER_ID, make_tiny_encoder
from tests.inference.served import Served, serve
from tests.storage.hub_server import Hub, serving_hub


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    source = make_tiny_model(tmp_path_factory.mktemp("source"))
    files = {file.name: file.read_bytes() for file in source.iterdir() if file.is_file()}
    with serving_hub(Hub(HUB_MODEL, files)) as hub:
        home = tmp_path_factory.mktemp("clients")
        make_tiny_encoder(home / "models")
        one = serve(home, {"HF_ENDPOINT": hub.url})
        try:
            one.place()
            one.place(ENCODER_ID)
            yield one
        finally:
            one.end()

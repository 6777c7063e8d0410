"""Cards made from a config.json alone: on disk, in the store or on the hub."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from skulkd.store.cards.from_config import card_of_config
from skulkd.store.cards.lookup import CardLookup
from skulkd.store.client.connection import StoreAddress
from skulkd.store.client.store_client import StoreClient
from skulkd.store.config import StoreConfig
from skulkd.store.errors import (
    BrokenModelError,
    DownloadError,
    HubTimeoutError,
    StoreError,
    UnknownModelError,
)
from skulkd.store.host.registry import Registry
from skulkd.store.host.server import StoreServer
from skulkd.store.hub.child import HubCards
from skulkd.store.hub.client import hub_api, list_files
from skulkd.store.staging.area import StagingArea
from skulkd.wire.config import ModelStoreSection
from tests.daemon_process import NO_HUB
from tests.storage.hub_server import Hub, serving_hub
from tests.storage.store_server import SECRET, no_hub, real_store

DEADLINE_S = 300.0
MODEL = "org/new-model"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 12,
    "hidden_size": 512,
    "num_key_value_heads": 4,
}
INDEX = {"metadata": {"total_size": 5000}, "weight_map": {"a": "model-00001.safetensors"}}


def add_files(directory: Path, **files: object) -> Path:
    directory.mkdir(parents=True)
    names = {"config": "config.json", "index": "model.safetensors.index.json"}
    for key, content in files.items():
        (directory / names[key]).write_text(json.dumps(content), encoding="utf-8")
    return directory


def hub_cards(url: str = NO_HUB) -> HubCards:
    path = ":".join(filter(None, sys.path))
    environ = {**os.environ, "HF_ENDPOINT": url, "PYTHONPATH": path}
    return HubCards(environ, answer_s=DEADLINE_S)


def test_a_config_and_an_index_are_enough_for_a_card(tmp_path: Path) -> None:
    card = card_of_config(add_files(tmp_path / "m", config=CONFIG, index=INDEX), MODEL)
    assert card is not None
    found = (card.model_id, card.n_layers, card.num_key_value_heads, card.supports_tensor)
    assert found == (MODEL, 12, 4, True)
    assert card.storage_size.in_bytes == 5000


def test_weights_tell_the_size_without_an_index(tmp_path: Path) -> None:
    directory = add_files(tmp_path / "m", config=CONFIG)
    (directory / "model.safetensors").write_bytes(b"x" * 77)
    card = card_of_config(directory, MODEL)
    assert card is not None
    assert card.storage_size.in_bytes == 77


@pytest.mark.parametrize("index", [{}, {"metadata": {"total_size": "much"}}, {"metadata": None}])
def test_a_model_of_unknown_size_gets_no_card(tmp_path: Path, index: object) -> None:
    directory = add_files(tmp_path / "m", config=CONFIG, index=index)
    with pytest.raises(BrokenModelError, match="neither weights nor"):
        card_of_config(directory, MODEL)


def test_without_a_config_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert card_of_config(tmp_path, MODEL) is None
    assert card_of_config(tmp_path / "none", MODEL) is None


async def test_a_staged_config_is_found_before_anybody_is_asked(tmp_path: Path) -> None:
    add_files(tmp_path / "org--new-model", config=CONFIG, index=INDEX)
    setup = StoreConfig(tmp_path / "models", area=StagingArea(tmp_path))
    card = await CardLookup(setup, hub_cards()).find(MODEL)
    assert card.storage_size.in_bytes == 5000


async def test_a_store_that_may_not_ask_the_hub_says_so(tmp_path: Path) -> None:
    store = ModelStoreSection.model_validate(
        {"store_host": "h", "store_path": "/s", "download": {"allow_hf_fallback": False}}
    )
    setup = StoreConfig(tmp_path, store=store, store_root=tmp_path)
    with pytest.raises(UnknownModelError, match="allow_hf_fallback"):
        await CardLookup(setup, hub_cards()).find(MODEL)


async def test_offline_no_process_is_started(tmp_path: Path) -> None:
    lookup = CardLookup(StoreConfig(tmp_path), HubCards({}, offline=True))
    with pytest.raises(DownloadError, match="SKULK_OFFLINE"):
        await lookup.find(MODEL)


async def test_a_node_asks_the_store_host_for_a_config_in_the_store(tmp_path: Path) -> None:
    root = tmp_path / "store"
    add_files(root / "org--new-model", config=CONFIG, index=INDEX)
    host = CardLookup(StoreConfig(tmp_path, store_root=root), hub_cards())
    server = StoreServer(Registry(root), SECRET, no_hub(root), describe=host.find_as_host)
    with real_store(root, server) as address:

        async def find() -> StoreAddress:
            return address

        node = CardLookup(StoreConfig(tmp_path), hub_cards(), StoreClient(find))
        assert (await node.find(MODEL)).n_layers == 12
        with pytest.raises(StoreError, match="is unreachable"):
            await node.find("org/other")


# --- the hub, with real child processes ---


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    files = {
        "config.json": json.dumps(CONFIG).encode(),
        "tokenizer_config.json": json.dumps({"chat_template": "{{ tools }}<think>"}).encode(),
        "model.safetensors": b"w" * 4321,
        "README.md": b"text",
    }
    with serving_hub(Hub(MODEL, files)) as served:
        yield served


async def test_the_hub_tells_enough_for_a_card_and_is_asked_once(hub: Hub, tmp_path: Path) -> None:
    lookup = CardLookup(StoreConfig(tmp_path), hub_cards(hub.url))
    card = await lookup.find(MODEL)
    assert (card.n_layers, card.storage_size.in_bytes) == (12, 4321)
    assert card.capabilities == ["text", "thinking"]
    assert hub.sent_bytes < 4321
    asked = len(hub.asked)
    assert await lookup.find(MODEL) == card
    assert len(hub.asked) == asked


async def test_a_slow_hub_is_not_waited_for_and_its_answer_is_kept(
    hub: Hub, tmp_path: Path
) -> None:
    cards = hub_cards(hub.url)
    lookup = CardLookup(StoreConfig(tmp_path), cards)
    cards.answer_s = 0.0
    asked = list(hub.asked)
    with pytest.raises(HubTimeoutError, match="timed out waiting for the hub"):
        await lookup.find(MODEL)
    cards.answer_s = DEADLINE_S
    assert (await lookup.find(MODEL)).n_layers == 12
    again = hub.asked[len(asked) :]
    assert len(again) == len(set(again)), "the request that was not waited for went on"


async def test_a_model_the_hub_does_not_have_is_unknown(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(UnknownModelError, match="no such model"):
        await CardLookup(StoreConfig(tmp_path), hub_cards(hub.url)).find("org/typo")


async def test_a_hub_that_is_not_there_is_tried_once_for_a_while(tmp_path: Path) -> None:
    now = [100.0]
    cards = hub_cards()
    cards.clock = lambda: now[0]
    lookup = CardLookup(StoreConfig(tmp_path), cards)
    with pytest.raises(DownloadError, match="is unreachable") as first:
        await lookup.find(MODEL)
    with pytest.raises(DownloadError) as second:
        await lookup.find("org/other")
    assert second.value is first.value
    now[0] += 60
    with pytest.raises(DownloadError) as third:
        await lookup.find("org/other")
    assert third.value is not first.value


def test_a_hub_that_stays_silent_has_timed_out() -> None:
    """A listening socket that nobody reads from."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hub = hub_api({"HF_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}"})
        with pytest.raises(HubTimeoutError, match="timed out waiting for the hub at"):
            list_files(hub, MODEL, timeout_s=0.1)


async def test_a_node_learns_from_the_store_host_that_the_hub_timed_out(
    hub: Hub, tmp_path: Path
) -> None:
    slow = hub_cards(hub.url)
    slow.answer_s = 0.0
    host = CardLookup(StoreConfig(tmp_path, store_root=tmp_path), slow)
    server = StoreServer(Registry(tmp_path), SECRET, no_hub(tmp_path), describe=host.find_as_host)
    with real_store(tmp_path, server) as address:

        async def find() -> StoreAddress:
            return address

        node = CardLookup(StoreConfig(tmp_path), hub_cards(), StoreClient(find))
        with pytest.raises(HubTimeoutError):
            await node.find(MODEL)

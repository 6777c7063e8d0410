"""Models sent by an operator: whole or not at all, verified, resumed, and nowhere but in place."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from skulkd.api.services import Services
from skulkd.store.host.registry import Registry
from skulkd.store.host.server import StoreServer
from skulkd.store.host.uploads import MOST_UPLOADS, LocalUploads, UploadFiles
from skulkd.store.imports.tiny_model import TINY_MODEL_ID, make_tiny_model
from skulkd.wire.downloads import DownloadCompleted
from tests.api.in_process import SECRET, serving, some_services
from tests.storage.cards import until
from tests.storage.store_server import no_hub, real_store
from tests.storage.test_storage_api import store_flags

PATH = "/v1/model-uploads"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a whole model."""
    directory = make_tiny_model(tmp_path_factory.mktemp("tiny"))
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def listed(files: dict[str, bytes]) -> list[dict[str, Any]]:
    return [
        {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for path, data in files.items()
    ]


@dataclass
class Operator:
    """Asks a served node."""

    session: aiohttp.ClientSession
    url: str

    async def ask(self, method: str, path: str, **sent: Any) -> tuple[int, Any]:
        async with self.session.request(method, self.url + path, **sent) as answer:
            return answer.status, await answer.json()

    async def begin(self, files: list[dict[str, Any]], **more: Any) -> tuple[int, Any]:
        body = {"modelId": TINY_MODEL_ID, "files": files, **more}
        return await self.ask("POST", PATH, json=body)

    async def put(self, path: str, data: Any, offset: int = 0) -> tuple[int, Any]:
        query = {"model_id": TINY_MODEL_ID, "path": path, "offset": str(offset)}
        body = io.BytesIO(data) if isinstance(data, bytes) else data
        return await self.ask("PUT", f"{PATH}/file", params=query, data=body)

    async def commit(self, **query: str) -> tuple[int, Any]:
        body = {"modelId": TINY_MODEL_ID}
        return await self.ask("POST", f"{PATH}/commit", params=query, json=body)

    async def send(self, files: dict[str, bytes], **more: Any) -> None:
        status, answer = await self.begin(listed(files), **more)
        assert status == 200, answer
        for path, data in files.items():
            assert await self.put(path, data) == (200, {"path": path, "receivedBytes": len(data)})


@contextlib.asynccontextmanager
async def operating(node: Services) -> AsyncIterator[Operator]:
    async with serving(node) as url, aiohttp.ClientSession() as session:
        yield Operator(session, url)


@pytest.fixture
async def node(tmp_path: Path) -> Services:
    return some_services(tmp_path)


@pytest.fixture
async def operator(node: Services) -> AsyncIterator[Operator]:
    async with operating(node) as asking:
        yield asking


def models_of(node: Services) -> set[str]:
    entries = node.replica.state.downloads.get(node.identity.node_id, ())
    cards = [e.shard_metadata.model_card for e in entries if isinstance(e, DownloadCompleted)]
    return {card.model_id for card in cards}


def files_below(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*"))


def kind_of(answer: Any) -> str:
    return str(answer["error"]["refusal"]["kind"])


async def test_a_model_is_there_when_all_of_it_has_arrived(
    node: Services, operator: Operator, model: dict[str, bytes], tmp_path: Path
) -> None:
    _, place = await operator.ask("GET", PATH)
    assert (place["target"], place["directory"]) == ("models", str(tmp_path / "models"))
    await operator.send(model)
    assert await node.models.list() == ()
    status, done = await operator.commit()
    assert (status, done["target"]) == (200, "models")
    assert done["sizeBytes"] == sum(map(len, model.values()))
    assert models_of(node) == {TINY_MODEL_ID}
    directory = tmp_path / "models" / "skulk--tiny-llama"
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == model
    assert [path.name for path in (tmp_path / "models").iterdir()] == [directory.name]


async def test_a_cut_connection_leaves_nothing_to_place_and_is_taken_up(
    node: Services, operator: Operator, model: dict[str, bytes]
) -> None:
    name, data = "model.safetensors", model["model.safetensors"]
    await operator.begin(listed(model))

    async def half() -> AsyncIterator[bytes]:
        yield data[:1000]
        raise ConnectionResetError("the operator pressed ctrl-C")

    with pytest.raises((aiohttp.ClientError, ConnectionResetError)):
        await operator.put(name, half())
    scratch = Path(node.settings.sources.paths.models) / ".uploading-skulk--tiny-llama"
    await until((scratch / f"{name}.partial").exists, "the first bytes")

    uploads = node.store.uploads
    assert isinstance(uploads, LocalUploads)
    await until(lambda: not uploads.busy, "the end of the cut request")
    _, answer = await operator.begin(listed(model))
    there = answer["received"][name]
    assert 0 <= there <= 1000
    assert (await operator.commit())[0] == 400
    assert models_of(node) == set()
    assert await operator.put(name, data[there:], there) == (
        200,
        {"path": name, "receivedBytes": len(data)},
    )
    for path in set(model) - {name}:
        await operator.put(path, model[path])
    assert (await operator.commit())[0] == 200


async def test_damaged_bytes_are_refused_and_sent_again(
    operator: Operator, model: dict[str, bytes]
) -> None:
    await operator.begin(listed(model))
    data = model["config.json"]
    status, answer = await operator.put("config.json", b"x" * len(data))
    assert (status, kind_of(answer)) == (400, "broken_model")
    assert (await operator.commit())[0] == 400
    assert (await operator.put("config.json", data))[0] == 200


async def test_a_compressed_file_is_refused_before_a_byte_of_it_is_kept(
    operator: Operator, model: dict[str, bytes]
) -> None:
    await operator.begin(listed(model))
    data = model["config.json"]
    query = {"model_id": TINY_MODEL_ID, "path": "config.json", "offset": "0"}
    status, answer = await operator.ask(
        "PUT", f"{PATH}/file", params=query, data=data, headers={"Content-Encoding": "gzip"}
    )
    assert (status, "uncompressed" in answer["error"]["message"]) == (415, True)
    assert await operator.put("config.json", data) == (
        200,
        {"path": "config.json", "receivedBytes": len(data)},
    )


@pytest.mark.parametrize(
    "path",
    ["../x.json", "/tmp/x.json", "a/../b.json", ".hidden.json", "a/.b/c.json", "a\\b.json",
     "run.py", "lib.so", "x.json.partial", "a//b.json", "", "CONFIG.JSON", "config.json/x.json"],
)  # fmt: skip
async def test_a_name_that_leads_elsewhere_or_is_no_data_is_refused(
    operator: Operator, model: dict[str, bytes], tmp_path: Path, path: str
) -> None:
    before = files_below(tmp_path)
    entry = {"path": path, "size": 1, "sha256": "0" * 64}
    status, answer = await operator.begin([*listed(model), entry])
    assert (status, kind_of(answer)) == (400, "bad_manifest")
    assert files_below(tmp_path) == before
    await operator.begin(listed(model))
    status, answer = await operator.put(path, b"x")
    assert status in (400, 404, 409)
    assert not (tmp_path / "models" / "x.json").exists()


async def test_more_bytes_than_were_announced_are_refused(
    operator: Operator, model: dict[str, bytes]
) -> None:
    await operator.begin(listed(model))
    status, answer = await operator.put("config.json", model["config.json"] + b" ")
    assert (status, kind_of(answer)) == (400, "bad_manifest")


async def test_a_wrong_offset_says_where_to_go_on(
    operator: Operator, model: dict[str, bytes]
) -> None:
    await operator.begin(listed(model))
    status, answer = await operator.put("config.json", b"x", 5)
    assert (status, kind_of(answer)) == (409, "upload_offset")
    assert "continues at byte 0, not at 5" in answer["error"]["message"]


async def test_a_link_in_the_way_is_not_followed(
    operator: Operator, model: dict[str, bytes], tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("", encoding="utf-8")
    await operator.begin(listed(model))
    scratch = tmp_path / "models" / ".uploading-skulk--tiny-llama"
    (scratch / "config.json.partial").symlink_to(victim)
    _, answer = await operator.begin(listed(model))
    there = answer["received"]["config.json"]
    status, _ = await operator.put("config.json", model["config.json"][there:], there)
    assert status >= 400
    assert victim.read_bytes() == b""


async def test_a_model_that_cannot_be_loaded_is_not_registered(
    node: Services, operator: Operator, model: dict[str, bytes]
) -> None:
    without = {path: data for path, data in model.items() if not path.startswith("tokenizer")}
    await operator.send(without)
    status, answer = await operator.commit()
    assert (status, kind_of(answer)) == (400, "broken_model")
    assert "tokenizer" in answer["error"]["message"]
    assert models_of(node) == set()


async def test_an_id_that_is_taken_is_replaced_only_on_demand(
    operator: Operator, model: dict[str, bytes]
) -> None:
    await operator.send(model)
    await operator.commit()
    status, answer = await operator.begin(listed(model))
    assert (status, kind_of(answer)) == (409, "model_exists")
    await operator.send(model, replace=True)
    assert (await operator.commit())[0] == 409
    assert (await operator.commit(replace="true"))[0] == 200


async def test_a_cancelled_upload_is_gone(
    operator: Operator, model: dict[str, bytes], tmp_path: Path
) -> None:
    await operator.begin(listed(model))
    gone = f"{PATH}?model_id={TINY_MODEL_ID}"
    assert (await operator.ask("DELETE", gone))[0] == 200
    assert (await operator.ask("DELETE", gone))[0] == 404
    assert list((tmp_path / "models").iterdir()) == []


async def test_uploads_are_bounded_by_the_disk_and_in_number(
    operator: Operator, model: dict[str, bytes], tmp_path: Path
) -> None:
    huge = {"path": "model-2.safetensors", "size": 1 << 49, "sha256": "0" * 64}
    status, answer = await operator.begin([*listed(model), huge])
    assert (status, kind_of(answer)) == (507, "no_space")
    for number in range(MOST_UPLOADS):
        body = {"modelId": f"org/m{number}", "files": listed(model)}
        assert (await operator.ask("POST", PATH, json=body))[0] == 200
    status, answer = await operator.begin(listed(model))
    assert (status, kind_of(answer)) == (409, "busy")
    assert len(list((tmp_path / "models").iterdir())) == MOST_UPLOADS


async def test_uploads_need_the_secret_like_every_change(
    tmp_path: Path, model: dict[str, bytes]
) -> None:
    node = some_services(tmp_path, {"api.token_on_loopback": True})
    async with operating(node) as stranger:
        assert (await stranger.begin(listed(model)))[0] == 401
        assert (await stranger.put("config.json", b"x"))[0] == 401
        stranger.session.headers["Authorization"] = f"Bearer {SECRET}"
        assert (await stranger.begin(listed(model)))[0] == 200


# --- through a node into the store of another ---


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tuple[Registry, int]]:
    """A store host that takes uploads, and its port."""
    registry = Registry(tmp_path / "store")

    async def arrived(model_id: str) -> None:
        await asyncio.to_thread(registry.add, model_id)

    uploads = LocalUploads(UploadFiles(registry.root), "store", arrived)
    host = StoreServer(registry, SECRET, no_hub(registry.root), uploads=uploads)
    with real_store(registry.root, host) as address:
        yield registry, address.port


async def test_a_node_passes_an_upload_on_to_the_store(
    tmp_path: Path, store: tuple[Registry, int], model: dict[str, bytes]
) -> None:
    registry, port = store
    home = tmp_path / "kite2"
    home.mkdir()
    node = some_services(home, store_flags(home, store_port=port))
    async with operating(node) as operator:
        _, place = await operator.ask("GET", PATH)
        assert (place["target"], place["directory"]) == ("store", None)
        status, answer = await operator.put("config.json", b"x")
        assert (status, kind_of(answer)) == (404, "unknown_model")
        await operator.send(model)
        assert registry.entries() == []
        status, done = await operator.commit()
        assert (status, done["target"]) == (200, "store")
        assert [entry.model_id for entry in registry.entries()] == [TINY_MODEL_ID]
        status, answer = await operator.begin(listed(model))
        assert (status, kind_of(answer)) == (409, "model_exists")
        # The node offers it at once, without waiting for its next look at the store.
        assert TINY_MODEL_ID in [card.model_id for card in node.store.inventory.cards()]
    assert not (home / "models" / "skulk--tiny-llama").exists()
    assert json.loads((registry.root / "registry.json").read_bytes())


async def test_a_store_that_does_not_answer_is_named(
    tmp_path: Path, model: dict[str, bytes]
) -> None:
    node = some_services(tmp_path, store_flags(tmp_path))
    async with operating(node) as operator:
        status, answer = await operator.begin(listed(model))
    assert (status, kind_of(answer)) == (503, "store_unreachable")

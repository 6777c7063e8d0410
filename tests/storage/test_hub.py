"""Fetching from a hub that drops connections, serves wrong bytes, or does not know the model."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skulkd.store.atomic_directory import no_report
from skulkd.store.client.connection import RetryPolicy
from skulkd.store.errors import DownloadError, HubUnreachableError, UnknownModelError
from skulkd.store.host.registry import Registry
from skulkd.store.hub.client import HubFile, choose_files, fetch_model
from skulkd.store.hub.downloads import HubDownloads
from skulkd.store.imports.tiny_model import make_tiny_model
from tests.storage.cards import card, until
from tests.storage.hub_server import Hub, serving_hub

MODEL = "org/model"


def no_pause(_seconds: float) -> None:
    """What a busy operator wishes for."""


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = make_tiny_model(tmp_path_factory.mktemp("source"))
    files = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
    return {**files, "original/old.bin": b"no", "pytorch_model.bin": b"no", ".gitattributes": b""}


@pytest.fixture
def hub(content: dict[str, bytes]) -> Iterator[Hub]:
    with serving_hub(Hub(MODEL, dict(content))) as hub:
        yield hub


def fetch(hub: Hub, root: Path, model_id: str = MODEL, **environ: str) -> Path:
    where = {"HF_ENDPOINT": hub.url, **environ}
    return fetch_model(model_id, root, where, no_report, pause=no_pause)


def wanted(hub: Hub) -> dict[str, bytes]:
    skipped = ("original/", "pytorch_model", ".")
    return {name: data for name, data in hub.files.items() if not name.startswith(skipped)}


def here(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_model_arrives_without_what_nobody_loads(hub: Hub, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None, str]] = []

    def report(*progress: Any) -> None:
        seen.append(progress)

    path = fetch_model(MODEL, tmp_path, {"HF_ENDPOINT": hub.url}, report, pause=no_pause)
    assert path == tmp_path / "org--model"
    assert here(path) == wanted(hub)
    assert seen[-1][1] == seen[-1][2] == sum(map(len, wanted(hub).values()))
    assert [p.name for p in tmp_path.iterdir()] == ["org--model"]


def test_dropped_connections_are_resumed(hub: Hub, tmp_path: Path) -> None:
    hub.drops["model.safetensors"] = 2
    assert here(fetch(hub, tmp_path)) == wanted(hub)
    assert hub.drops["model.safetensors"] == 0


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_wrong_bytes_are_found_and_fetched_again(hub: Hub, tmp_path: Path, name: str) -> None:
    hub.lies[name] = 1
    assert here(fetch(hub, tmp_path)) == wanted(hub)


def test_a_hub_that_always_lies_is_given_up_with_the_file(hub: Hub, tmp_path: Path) -> None:
    hub.lies["model.safetensors"] = 1000
    with pytest.raises(
        DownloadError, match=r"model\.safetensors of org/model does not match the hub"
    ):
        fetch(hub, tmp_path)
    assert not (tmp_path / "org--model").exists()


def test_what_a_failed_fetch_left_is_used_by_the_next(hub: Hub, tmp_path: Path) -> None:
    hub.lies["model.safetensors"] = 1000
    with pytest.raises(DownloadError):
        fetch(hub, tmp_path)
    hub.lies.clear()
    hub.sent_bytes = 0
    assert here(fetch(hub, tmp_path)) == wanted(hub)
    assert hub.sent_bytes < sum(map(len, wanted(hub).values()))


def test_a_server_error_passes(hub: Hub, tmp_path: Path) -> None:
    hub.refusals = [503]
    assert fetch(hub, tmp_path).is_dir()


def test_an_unknown_model_is_said_at_once(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(UnknownModelError, match="no such model, or it is private"):
        fetch(hub, tmp_path, "org/typo")
    assert len(hub.asked) == 1


def test_nobody_there_is_said_with_the_cause(tmp_path: Path) -> None:
    paused: list[float] = []
    with pytest.raises(HubUnreachableError, match=r"the hub at .* is unreachable"):
        fetch_model(MODEL, tmp_path, {"HF_ENDPOINT": "http://127.0.0.1:9"}, no_report,
                    pause=paused.append)  # fmt: skip
    assert paused == []


def test_offline_nothing_is_asked(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="offline"):
        fetch(hub, tmp_path, SKULK_OFFLINE="true")
    assert hub.asked == []


def test_a_pinned_file_brings_its_parts_and_projectors() -> None:
    paths = ["q4.gguf", "q4-00001-of-00002.gguf", "q8.gguf", "mmproj-x.gguf", "config.json", "../x"]
    files = [HubFile(path, 1, None, None) for path in paths]
    chosen = [file.path for file in choose_files(MODEL, files, "q4.gguf")]
    assert chosen == ["q4.gguf", "q4-00001-of-00002.gguf", "mmproj-x.gguf", "config.json"]
    with pytest.raises(UnknownModelError):
        choose_files(MODEL, [HubFile("../x", 1, None, None)], None)


# --- the desk of the daemon, with real child processes ---


def a_desk(hub: Hub, root: Path, **more: object) -> HubDownloads:
    environ = {**os.environ, "HF_ENDPOINT": hub.url, "PYTHONPATH": ":".join(filter(None, sys.path))}
    return HubDownloads(root, environ, retry=RetryPolicy(attempts=2, first_pause_s=0.01), **more)  # type: ignore[arg-type]


async def test_the_desk_fetches_registers_and_remembers(hub: Hub, tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    seen: list[str] = []

    async def arrived() -> None:
        state = desk.status(MODEL)
        seen.append("" if state is None else state.status)

    desk = a_desk(hub, tmp_path, registry=registry, on_complete=arrived)
    assert desk.request(MODEL).status in ("pending", "downloading")
    assert [state.model_id for state in desk.active()] == [MODEL]
    await until(lambda: (s := desk.status(MODEL)) and s.status == "complete", "the fetch", 120)
    assert [entry.model_id for entry in registry.entries()] == [MODEL]
    assert desk.active() == []
    # Whoever hears that it is complete may place it, so the others heard of it before.
    assert seen == ["downloading"]
    await desk.stop()


async def test_a_failure_is_tried_again_and_can_be_asked_for_again(
    hub: Hub, tmp_path: Path
) -> None:
    desk = a_desk(hub, tmp_path)
    with pytest.raises(DownloadError, match="org/typo: the hub has no such model"):
        await desk.fetch(card("org/typo"), lambda done, total: None)
    state = desk.status("org/typo")
    assert state is not None
    assert (state.status, "no such model" in (state.error or "")) == ("failed", True)
    assert desk.request("org/typo").status in ("pending", "downloading")
    await desk.stop()


async def test_a_stopped_desk_leaves_no_process(hub: Hub, tmp_path: Path) -> None:
    desk = a_desk(hub, tmp_path)
    task = asyncio.create_task(desk.fetch(card(MODEL), lambda done, total: None))
    await until(desk.active, "the fetch")
    await desk.stop()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_offline_the_desk_refuses_without_a_process(hub: Hub, tmp_path: Path) -> None:
    desk = a_desk(hub, tmp_path, offline=True)
    with pytest.raises(DownloadError, match="offline"):
        await desk.fetch(card(MODEL), lambda done, total: None)
    assert hub.asked == []

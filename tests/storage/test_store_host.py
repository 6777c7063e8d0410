"""The store server as its clients meet it: shapes, ranges, secrets, odd paths."""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from skulkd.store.client.connection import StoreAddress, StoreConnection
from skulkd.store.errors import FileAccessError, UnknownModelError
from skulkd.store.host.registry import Registry
from skulkd.store.host.server import StoreServer
from skulkd.store.imports.tiny_model import make_tiny_model
from skulkd.store.security import may_use_store, store_token
from skulkd.wire.storage import StoreHealth, StoreRegistryEntry
from tests.storage.store_server import SECRET, no_hub, real_store

ROOT = Path(__file__).parents[2]
MODEL = "skulk/tiny-llama"
IN_URL = "skulk%2Ftiny-llama"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    path = make_tiny_model(root)
    (path / "digits.txt").write_bytes(b"0123456789" * 10)
    (path / "empty.txt").write_bytes(b"")
    (path / "sub").mkdir()
    (path / "sub" / "odd name ü.txt").write_bytes(b"odd")
    (path / ".hidden").write_bytes(b"ours")
    (path / "sub" / "half.bin.partial").write_bytes(b"half")
    (path / "leads-out").symlink_to("/etc/passwd")
    return root


@pytest.fixture(scope="module")
def store(root: Path) -> Iterator[StoreAddress]:
    with real_store(root) as address:
        yield address


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def get(
    store: StoreAddress, path: str, method: str = "GET", body: str | None = None, **headers: str
) -> Reply:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection(store.host, store.port, timeout=600)
    try:
        sent = {"Authorization": f"Bearer {store.token}", **names}
        encoded = {name: value.encode() for name, value in sent.items()}
        connection.request(method, path, body, headers=encoded)
        answer = connection.getresponse()
        return Reply(answer.status, answer.headers, answer.read())
    finally:
        connection.close()


def test_it_tells_health_registry_and_models_in_the_reference_shapes(
    store: StoreAddress, root: Path
) -> None:
    health = get(store, "/health").json()
    assert list(health) == ["store_path", "free_bytes", "total_bytes", "used_bytes"]
    assert health["store_path"] == str(root)
    StoreHealth(**health)
    (entry,) = get(store, "/registry").json()
    known = StoreRegistryEntry.model_validate(entry)
    assert known.store_path == "skulk--tiny-llama"
    assert get(store, "/models").json() == [MODEL]


def test_files_are_a_plain_list_without_ours_and_links_that_lead_out(store: StoreAddress) -> None:
    files = get(store, f"/models/{IN_URL}/files").json()
    assert {"config.json", "model.safetensors", "sub/odd name ü.txt"} <= set(files)
    assert not {".hidden", ".sha256.json", "sub/half.bin.partial", "leads-out"} & set(files)
    assert get(store, "/models/no%2Fsuch/files").status == 404


@pytest.mark.parametrize(
    ("asked", "status", "content", "told"),
    [
        ("bytes=10-19", 206, b"0123456789", "bytes 10-19/100"),
        ("bytes=95-", 206, b"56789", "bytes 95-99/100"),
        ("bytes=-5", 206, b"56789", "bytes 95-99/100"),
        ("bytes=90-500", 206, b"0123456789", "bytes 90-99/100"),
        ("bytes=0-", 206, b"0123456789" * 10, "bytes 0-99/100"),
        ("bytes=100-", 416, None, "bytes */100"),
        ("bytes=5-4", 416, None, "bytes */100"),
        ("bytes=a-b", 416, None, "bytes */100"),
    ],
)
def test_ranges(
    store: StoreAddress, asked: str, status: int, content: bytes | None, told: str
) -> None:
    answer = get(store, f"/models/{IN_URL}/digits.txt", Range=asked)
    assert (answer.status, answer.headers["Content-Range"]) == (status, told)
    if content is not None:
        assert answer.body == content
        assert answer.headers["Content-Length"] == str(len(content))


def test_if_range_gives_the_rest_only_of_the_same_file(store: StoreAddress) -> None:
    whole = get(store, f"/models/{IN_URL}/digits.txt")
    tag, date = whole.headers["ETag"], whole.headers["Last-Modified"]
    assert whole.headers["Accept-Ranges"] == "bytes"
    path = f"/models/{IN_URL}/digits.txt"
    assert get(store, path, Range="bytes=90-", If_Range=tag).status == 206
    for other in ('"some-other-tag"', f"W/{tag}", "Thu, 01 Jan 1970 00:00:00 GMT"):
        answer = get(store, path, Range="bytes=90-", If_Range=other)
        assert (answer.status, len(answer.body)) == (200, 100), other
    assert date


def test_head_has_the_headers_and_no_body_and_the_connection_lives_on(store: StoreAddress) -> None:
    connection = http.client.HTTPConnection(store.host, store.port, timeout=600)
    headers = {"Authorization": f"Bearer {store.token}"}
    for _ in range(3):
        connection.request("HEAD", f"/models/{IN_URL}/digits.txt", headers=headers)
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Content-Length")) == (200, "100")
        assert answer.read() == b""
    connection.request("GET", f"/models/{IN_URL}/digits.txt", headers=headers)
    assert len(connection.getresponse().read()) == 100
    connection.close()


def test_empty_files_and_odd_names_can_be_had(store: StoreAddress) -> None:
    assert get(store, f"/models/{IN_URL}/empty.txt").body == b""
    assert get(store, f"/models/{IN_URL}/sub/odd%20name%20%C3%BC.txt").body == b"odd"


@pytest.mark.parametrize(
    "path",
    [
        ".hidden", "sub/half.bin.partial", "leads-out", "sub", "nothing", "%2e%2e%2fregistry.json",
        "sub/%2e%2e/%2e%2e/registry.json", "%2Fetc%2Fpasswd", "a%00b",
    ],
)  # fmt: skip
def test_what_is_no_file_of_the_model_is_not_given(store: StoreAddress, path: str) -> None:
    assert get(store, f"/models/{IN_URL}/{path}").status in (400, 404)


def test_only_members_of_the_cluster_are_answered(store: StoreAddress) -> None:
    for token in ("", "wrong", store.token.upper(), "ü"):
        for path in ("/health", f"/models/{IN_URL}/digits.txt"):
            assert get(store, path, Authorization=f"Bearer {token}").status == 401
    assert get(store, "/health", Authorization=f"Bearer {SECRET}").status == 200


def test_the_token_of_a_node_is_not_the_secret() -> None:
    token = store_token(SECRET)
    assert SECRET not in token
    assert may_use_store(f"bearer {token}", SECRET)
    assert may_use_store(f"bearer {token}", SECRET, secret_for_operators=False)
    assert not may_use_store(f"bearer {SECRET}", SECRET, secret_for_operators=False)
    assert not may_use_store(f"Bearer {store_token('another')}", SECRET)
    assert not may_use_store(None, SECRET)
    assert not may_use_store("Bearer ", "")


def test_the_manifest_has_sizes_and_checksums(store: StoreAddress, root: Path) -> None:
    manifest = get(store, f"/manifests/{IN_URL}").json()
    found = {entry["path"]: entry for entry in manifest["files"]}
    content = (root / "skulk--tiny-llama" / "model.safetensors").read_bytes()
    assert found["model.safetensors"]["size"] == len(content)
    assert found["model.safetensors"]["sha256"] == hashlib.sha256(content).hexdigest()
    assert manifest["card"]["modelId"] == MODEL
    (described,) = get(store, "/catalogue").json()
    assert described["card"] == manifest["card"]


def test_a_file_that_changes_gets_a_new_checksum(store: StoreAddress, root: Path) -> None:
    def digest() -> str:
        manifest = get(store, f"/manifests/{IN_URL}").json()
        return next(f["sha256"] for f in manifest["files"] if f["path"] == "empty.txt")

    before = digest()
    (root / "skulk--tiny-llama" / "empty.txt").write_bytes(b"no longer")
    assert digest() != before
    (root / "skulk--tiny-llama" / "empty.txt").write_bytes(b"")
    assert digest() == before


def test_downloads_are_asked_of_the_fetcher_unless_the_model_is_there(root: Path) -> None:
    hub = no_hub(root)
    with real_store(root, StoreServer(Registry(root), SECRET, hub)) as store:
        link = StoreConnection(store)
        answer = link.json(f"/models/{IN_URL}/download", method="POST")
        assert answer == {"modelId": MODEL, "status": "complete", "progress": 1.0}
        assert hub.status(MODEL) is None
        answer = get(store, "/models/no%2Fsuch/download", "POST", '{"gguf_file": "x"}').json()
        assert answer == {"modelId": "no/such", "status": "pending", "progress": 0.0}
        state = link.json("/models/no%2Fsuch/download/status")
        assert state["status"] == "failed"
        assert "offline" in state["error"]
        with pytest.raises(UnknownModelError):
            link.json("/models/never%2Fasked/download/status")
        assert link.json("/downloads") == []
        link.close()


def test_deleting_removes_files_and_entry_but_not_what_is_in_use(tmp_path: Path) -> None:
    make_tiny_model(tmp_path)
    held = {"why": "instance 1"}
    host = StoreServer(
        Registry(tmp_path), SECRET, no_hub(tmp_path), in_use_reason=lambda _: held.get("why")
    )
    with real_store(tmp_path, host) as store:
        answer = get(store, f"/models/{IN_URL}", method="DELETE")
        assert (answer.status, b"instance 1" in answer.body) == (409, True)
        held.clear()
        answer = get(store, f"/models/{IN_URL}", method="DELETE")
        assert answer.json() == {"modelId": MODEL, "deleted": True}
        assert get(store, f"/models/{IN_URL}", method="DELETE").status == 404
    assert not (tmp_path / "skulk--tiny-llama").exists()
    assert json.loads((tmp_path / "registry.json").read_text()) == {}


# --- the registry ---


def entry_of(name: str) -> dict[str, Any]:
    return {
        "model_id": f"org/{name}", "store_path": f"org--{name}", "files": ["a"],
        "downloaded_at": "2026-03-20T14:32:00+00:00", "total_bytes": 1, "repo_has_projector": None,
    }  # fmt: skip


def test_one_bad_entry_does_not_hide_the_others_and_is_kept(tmp_path: Path) -> None:
    for name in ("good", "away", "other"):
        (tmp_path / f"org--{name}").mkdir()
    written = {
        "org/good": entry_of("good"),
        "org/bad": {"model_id": 7},
        "org/away": {**entry_of("away"), "store_path": "../../etc"},
        "org/gone": entry_of("gone"),
        "org/wrong": entry_of("other"),
        "odd": None,
    }
    (tmp_path / "registry.json").write_text(json.dumps(written))
    registry = Registry(tmp_path)
    assert [entry.model_id for entry in registry.entries()] == ["org/good"]
    registry.add("org/other")
    assert [entry.model_id for entry in registry.entries()] == ["org/good", "org/other"]
    kept = json.loads((tmp_path / "registry.json").read_text())
    assert kept["org/bad"] == {"model_id": 7}


@pytest.mark.parametrize("text", ["{", "[]", "null", ""])
def test_a_broken_registry_is_made_again_from_whole_models(tmp_path: Path, text: str) -> None:
    make_tiny_model(tmp_path)
    (tmp_path / "org--half").mkdir()
    (tmp_path / "registry.json").write_text(text)
    assert [entry.model_id for entry in Registry(tmp_path).entries()] == [MODEL]
    assert list(json.loads((tmp_path / "registry.json").read_text())) == [MODEL]


def test_a_kill_while_the_registry_is_written_keeps_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "org--one").mkdir()
    (tmp_path / "org--two").mkdir()
    Registry(tmp_path).add("org/one")
    program = f"""
import os, pathlib, signal
os.fsync = lambda fd: os.kill(os.getpid(), signal.SIGKILL)
from skulkd.store.host.registry import Registry
Registry(pathlib.Path({str(tmp_path)!r})).add("org/two")
"""
    child = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, check=False
    )
    assert child.returncode == -signal.SIGKILL
    registry = Registry(tmp_path)
    assert [entry.model_id for entry in registry.entries()] == ["org/one"]
    registry.add("org/two")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "org--one", "org--two", "registry.json",
    ]  # fmt: skip


def test_a_full_disk_keeps_the_old_registry_and_says_so(small_disk: Path) -> None:
    for name in ("one", "two"):
        (small_disk / f"org--{name}").mkdir()
    registry = Registry(small_disk)
    registry.add("org/one")
    with (small_disk / "ballast").open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(b"x" * 4096)
        except OSError as error:
            assert error.errno == errno.ENOSPC
    with pytest.raises(FileAccessError, match="No space left"):
        registry.add("org/two")
    (small_disk / "ballast").unlink()
    assert [entry.model_id for entry in registry.entries()] == ["org/one"]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET /health HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", id="long"),
        pytest.param(
            b"POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            id="chunk",
        ),
    ],
)
def test_a_stranger_s_broken_request_is_answered_and_not_logged(
    store: StoreAddress, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection((store.host, store.port), 600) as connection:
        connection.sendall(sent)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.split(b" ", 2)[1] in {b"400", b"401"}
    assert get(store, "/health").status == 200
    assert caplog.records == []

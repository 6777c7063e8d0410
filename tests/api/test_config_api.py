"""`/config` of real daemons: what a PUT keeps, changes and refuses."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from skulkd.wire.config_api import ConfigAnswer, ConfigPutAnswer
from tests.daemon_process import DaemonProcess, StartDaemon, spawn_daemon

FILE = """\
# written by hand
hf_token: hf_abcdefghijklmnopqrstuvwx
cluster:
  secret: a-secret-of-twenty-chars

  # one per room
  namespace:  'lab'  # upstairs
tracing:   # keep short
  retention_days: 7
"""


def put(
    daemon: DaemonProcess, body: bytes, content_type: str = "application/json"
) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"{daemon.url}/config", data=body, method="PUT", headers={"Content-Type": content_type}
    )
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def on_disk(home: Path) -> Any:
    return yaml.safe_load((home / "skulk.yaml").read_text())


def as_json(body: object) -> bytes:
    return json.dumps(body).encode()


@pytest.fixture(scope="module")
def module_daemon(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One daemon for this file; every test writes the file anew."""
    home = tmp_path_factory.mktemp("config")
    (home / "skulk.yaml").write_text(FILE)
    process = spawn_daemon(home)
    try:
        process.wait_ready()
        yield process
    finally:
        process.kill()


@pytest.fixture
def target(module_daemon: DaemonProcess) -> DaemonProcess:
    (module_daemon.home / "skulk.yaml").write_text(FILE)
    return module_daemon


def test_get_shows_the_file_without_secrets(target: DaemonProcess) -> None:
    body = target.get("/config")
    answer = ConfigAnswer.model_validate(body)
    assert answer.config == {"cluster": {"namespace": "lab"}, "tracing": {"retention_days": 7}}
    assert answer.file_exists
    assert answer.config_path == str(target.home / "skulk.yaml")
    assert answer.effective.has_hf_token is True
    text = json.dumps(body)
    assert "hf_abc" not in text
    assert "a-secret-of" not in text
    assert answer.settings is not None
    retention = next(s for s in answer.settings if s.key == "tracing.retention_days")
    assert (retention.value, retention.origin.rpartition("/")[2]) == (7, "skulk.yaml:9")


@pytest.mark.parametrize("wrap", [True, False])
def test_put_keeps_omitted_sections_secrets_and_comments(target: DaemonProcess, wrap: bool) -> None:
    sections = {"tracing": {"retention_days": 1}}
    status, body = put(target, as_json({"config": sections} if wrap else sections))
    assert status == 200
    assert ConfigPutAnswer.model_validate(body).success
    file = target.home / "skulk.yaml"
    assert file.read_text() == FILE.replace("retention_days: 7", "retention_days: 1")
    assert file.with_name("skulk.yaml.bak").read_text() == FILE
    assert file.stat().st_mode & 0o077 == 0


def test_put_of_a_section_keeps_the_secret_nobody_was_shown(target: DaemonProcess) -> None:
    status, _ = put(target, as_json({"cluster": {"namespace": "other"}}))
    assert status == 200
    assert (target.home / "skulk.yaml").read_text() == FILE.replace("'lab'", "'other'")


def test_put_of_null_removes_a_section(target: DaemonProcess) -> None:
    status, _ = put(target, as_json({"tracing": None}))
    assert status == 200
    assert "tracing" not in on_disk(target.home)


def test_put_of_what_is_there_changes_and_restarts_nothing(target: DaemonProcess) -> None:
    status, body = put(target, as_json({"tracing": {"retention_days": 7}}))
    assert (status, body["requiresRestart"]) == (200, False)
    assert (target.home / "skulk.yaml").read_text() == FILE


def test_put_of_a_model_store_wants_a_restart(target: DaemonProcess) -> None:
    store = {"store_host": "kite1", "store_path": "/srv/models"}
    status, body = put(target, as_json({"model_store": store}))
    assert (status, body["requiresRestart"]) == (200, True)
    assert "model_store" in body["message"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b'{"tracing": ', "not valid JSON", id="malformed"),
        pytest.param(b"", "not valid JSON", id="empty"),
        pytest.param(b"\xff\xfe\x00", "not valid JSON", id="not utf-8"),
        pytest.param(b"[" * 200_000, "not valid JSON", id="deep"),
        pytest.param(b"tracing:\n\tretention_days: 1\n", "not valid JSON", id="yaml with tabs"),
        pytest.param(b"a: &a [x]\nb: [*a, *a]\n", "not valid JSON", id="yaml aliases"),
        pytest.param(b"[]", "JSON object", id="list"),
        pytest.param(b'"text"', "JSON object", id="string"),
        pytest.param(b'{"config": []}', "JSON object", id="config is a list"),
        pytest.param(b'{"tracing": {"retention_days": NaN}}', "not valid JSON", id="nan"),
        pytest.param(b'{"tracign": {}}', "did you mean tracing", id="unknown section"),
        pytest.param(b'{"tracing": {"retention_days": "7"}}', "retention_days", id="wrong type"),
        pytest.param(b'{"tracing": {"retention_dys": 7}}', "retention_days", id="unknown key"),
        pytest.param(b'{"api": {"listen": "nowhere"}}', "api.listen", id="impossible value"),
        pytest.param(b'{"node": {"name": "a\\ud800"}}', "", id="half a surrogate pair"),
        pytest.param(b'{"node": {"name": "a\\u0000b"}}', "node.name", id="nul"),
        pytest.param(as_json({"tracing": {"x" * 5000: 1}}), "unknown key", id="long key"),
    ],
)
def test_an_invalid_put_is_a_422_envelope_and_changes_nothing(
    target: DaemonProcess, body: bytes, words: str
) -> None:
    status, answer = put(target, body, "text/plain")
    assert status == 422
    assert answer["error"]["type"] == "Unprocessable Content"
    assert (answer["error"]["code"], answer["error"]["param"]) == (422, None)
    assert words in answer["error"]["message"]
    assert (target.home / "skulk.yaml").read_text() == FILE
    assert sorted(p.name for p in target.home.iterdir() if p.name.endswith(".tmp")) == []


def test_a_put_of_ten_megabytes_is_a_413(target: DaemonProcess) -> None:
    status, answer = put(target, b'{"x": "' + b"x" * 10_000_000 + b'"}')
    assert (status, answer["error"]["type"]) == (413, "Content Too Large")
    assert (target.home / "skulk.yaml").read_text() == FILE


def test_a_refused_secret_is_not_repeated(target: DaemonProcess) -> None:
    status, answer = put(target, as_json({"cluster": {"secret": "tooshort"}}))
    assert status == 422
    assert "tooshort" not in json.dumps(answer)


@pytest.mark.parametrize(
    "content",
    [b"tracing:\n\tretention_days: 1\n", b"\xff\xfe\x00", b"tracing: {retention_dys: 1}\n"],
    ids=["tabs", "not utf-8", "unknown key"],
)
def test_a_file_broken_by_hand_is_named_and_not_overwritten(
    target: DaemonProcess, content: bytes
) -> None:
    file = target.home / "skulk.yaml"
    file.write_bytes(content)
    with pytest.raises(urllib.error.HTTPError) as caught:
        target.get("/config")
    with caught.value as error:
        assert error.code == 409
        assert "skulk.yaml" in json.load(error)["error"]["message"]
    if b"dys" not in content:
        status, _ = put(target, as_json({"node": {"name": "x"}}))
        assert status == 422
        assert file.read_bytes() == content
    assert target.get("/readyz") == {"status": "ok"}


def test_a_first_put_creates_the_file(daemon: StartDaemon) -> None:
    target = daemon()
    assert not (target.home / "skulk.yaml").exists()
    assert put(target, as_json({"node": {"name": "kite7"}}))[0] == 200
    assert on_disk(target.home) == {"node": {"name": "kite7"}}
    assert target.get("/config")["fileExists"] is True


def test_a_disk_that_refuses_is_told_and_nothing_is_lost(
    daemon: StartDaemon, small_disk: Path
) -> None:
    home = small_disk / "home"
    home.mkdir()
    target = daemon(home=home, config=FILE)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as stream, pytest.raises(OSError, match="No space left"):
        while True:
            stream.write(b"x" * 4096)
    status, answer = put(target, as_json({"node": {"name": "x" * 60_000}}))
    assert (status, answer["error"]["type"]) == (507, "Insufficient Storage")
    assert (home / "skulk.yaml").read_text() == FILE
    filler.unlink()
    assert put(target, as_json({"node": {"name": "kite7"}}))[0] == 200
    assert on_disk(home)["node"] == {"name": "kite7"}

"""The bundle that the API answers with: everything in it, and no secret in any member.

A real daemon with a real runner; secrets are planted wherever an operator might leave one.
"""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from skulkd.wire.bundles import MANIFEST, MEDIA_TYPE, BadBundle, pack_bundle, unpack_bundle
from skulkd.worker.log_files import log_path
from tests.inference.served import Served, serve
from tests.skulkctl_process import skulkctl

ASK = {"Accept": MEDIA_TYPE}
# Values that look like nothing, so that only knowing them or their names can hide them.
PLANTED = {
    "cluster secret": "quiet-harbour-of-the-north",
    "variable": "seven-grey-herons-walk",
    "setting": "hf_aaaabbbbccccddddeeeeffff00001111",
    "command line": "under-the-old-stone-bridge",
    "log line": "sk-live-0123456789abcdef0123",
    "named in a log": "a-very-plain-looking-word",
}


@dataclass
class Planted:
    served: Served
    runner_id: str


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    """A daemon with a placed model, and secrets in its settings, variables and surroundings."""
    home = tmp_path_factory.mktemp("planted")
    config = home / "skulk.yaml"
    config.write_text(f"hf_token: {PLANTED['setting']}\n")
    config.chmod(0o600)
    environ = {
        "SKULK_CLUSTER_SECRET": PLANTED["cluster secret"],
        "SOME_SERVICE_PASSWORD": PLANTED["variable"],
    }
    # Log shippers are listed with the daemon's own processes.
    program = home / "vector"
    program.symlink_to("/bin/sh")
    shipper = subprocess.Popen(
        ["vector", "-c", "read line", "--token", PLANTED["command line"]],
        executable=program,
        stdin=subprocess.PIPE,
    )
    served = serve(home, environ)
    try:
        served.place()
        [record] = served.records()
        # As if a library had printed what it was given.
        [file] = home.rglob(log_path(Path("x"), record["runnerId"]).name)
        with file.open("a") as printed:
            for name in PLANTED:
                printed.write(f"planted here: {name}\n")
            printed.write(f"{PLANTED['variable']} {PLANTED['cluster secret']}\n")
            printed.write(f"key {PLANTED['log line']}\npassword={PLANTED['named in a log']}\n")
        yield Planted(served, record["runnerId"])
    finally:
        served.end()
        shipper.kill()
        shipper.communicate()


def bundle_of(answer: httpx.Response) -> dict[str, bytes]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == MEDIA_TYPE
    return unpack_bundle(io.BytesIO(answer.content))


def test_a_runner_is_captured_into_one_file(planted: Planted) -> None:
    order = {"runnerId": planted.runner_id, "sampleDurationSeconds": 1.0}
    path = f"/v1/diagnostics/cluster/{planted.served.daemon.node_id}/capture"
    answer = planted.served.client.post(path, json=order, headers=ASK)
    assert ".tar.zst" in answer.headers["content-disposition"]
    members = bundle_of(answer)

    manifest = json.loads(members[MANIFEST])
    assert manifest["kind"] == "skulk/capture-bundle"
    assert manifest["runnerId"] == planted.runner_id
    assert {one["name"] for one in manifest["members"]} == set(members) - {MANIFEST}
    assert {"diagnostics.json", "recorder.json", "processes.json", "mlx-memory.json",
            "proc.txt", "py-spy.txt", "log.txt", "daemon-log.txt"} <= set(members)  # fmt: skip
    assert json.loads(members["recorder.json"])
    assert json.loads(members["mlx-memory.json"])["source"] == "mlx.core"
    assert b"State:" in members["proc.txt"]
    assert b"listening on" in members["daemon-log.txt"]
    # What hides is beside what is hidden, or this would prove nothing.
    assert b"planted here: log line" in members["log.txt"]
    assert b"--token ***" in members["processes.json"]
    for name, secret in PLANTED.items():
        leaky = [one for one, data in members.items() if secret.encode() in data]
        assert not leaky, f"{name} is in {leaky}"


def test_a_report_of_it_hides_the_same(planted: Planted, tmp_path: Path) -> None:
    page, url = tmp_path / "report.html", planted.served.daemon.url
    done = skulkctl(
        "capture", "--report", str(page), "--file", str(tmp_path / "x.tar.zst"), "--sample", "1",
        home=tmp_path, endpoint=url,
    )  # fmt: skip
    assert done.code == 0, done.err
    text = page.read_text(encoding="utf-8")
    assert "planted here: log line" in text
    assert not [name for name, secret in PLANTED.items() if secret in text]


def test_the_same_as_json_hides_the_same(planted: Planted) -> None:
    order = {"runnerId": planted.runner_id, "sampleDurationSeconds": 1.0}
    answer = planted.served.post("/v1/diagnostics/node/capture", order)
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.json()["runner"]["runnerId"] == planted.runner_id
    assert not [name for name, secret in PLANTED.items() if secret in answer.text]


def test_a_whole_node_and_a_refusal(planted: Planted) -> None:
    client, path = planted.served.client, "/v1/diagnostics/node/capture"
    members = bundle_of(client.post(path, json={}, headers=ASK))
    assert json.loads(members["diagnostics.json"])["runtime"]["nodeId"]
    assert json.loads(members["runner.json"]) is None
    refused = client.post(path, json={"runnerId": "nobody"}, headers=ASK)
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, 404)


def test_what_is_no_bundle_is_refused() -> None:
    for raw in (b"", b"not a bundle", pack_bundle({"a": b"b"}, {})[:40]):
        with pytest.raises(BadBundle):
            unpack_bundle(io.BytesIO(raw))
    assert unpack_bundle(io.BytesIO(pack_bundle({"a": b"b"}, {})))["a"] == b"b"

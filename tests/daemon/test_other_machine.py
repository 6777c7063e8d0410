"""Another machine asks: a second network namespace, joined to ours by a cable made for the test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster_live.switch import enter_namespace
from tests.conftest import StartDaemon
from tests.skulkctl_process import Result, skulkctl

HERE, THERE = "198.18.77.1", "198.18.77.2"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None,
    reason="needs root on Linux and the ip tool to make a network namespace",
)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, timeout=600)


@pytest.fixture
def other_machine() -> Iterator[str]:
    """The name of a namespace that reaches us at HERE and has the address THERE."""
    suffix = f"{os.getpid() % 100_000}"
    space, near, far = f"skulk{suffix}", f"skn{suffix}", f"skf{suffix}"
    _ip("netns", "add", space)
    try:
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", space)
        _ip("addr", "add", f"{HERE}/30", "dev", near)
        _ip("link", "set", near, "up")
        _ip("-n", space, "addr", "add", f"{THERE}/30", "dev", far)
        _ip("-n", space, "link", "set", far, "up")
        yield space
    finally:
        _ip("netns", "del", space)


def _skulkctl(space: str, home: Path, *arguments: str) -> Result:
    entered = partial(enter_namespace, f"/run/netns/{space}")
    return skulkctl(*arguments, home=home, preexec_fn=entered)


def test_another_machine_needs_the_secret_and_gets_in_with_it(
    daemon: StartDaemon, other_machine: str, tmp_path: Path
) -> None:
    node = daemon(listen="0.0.0.0:0")
    endpoint = f"{HERE}:{node.port}"
    assert "cluster.secret" in node.said(), "a node that others reach says where the secret is"
    guest = tmp_path / "guest"
    guest.mkdir()

    refused = _skulkctl(other_machine, guest, "nodes", "--endpoint", endpoint)
    assert refused.code == 4, refused.err
    assert "--token-file" in refused.err

    open_to_all = _skulkctl(other_machine, guest, "api", "GET", "/healthz", "--endpoint", endpoint)
    assert json.loads(open_to_all.out) == {"status": "ok"}

    secret = guest / "copied.secret"
    secret.write_text((node.home / "cluster.secret").read_text())
    secret.chmod(0o600)
    added = _skulkctl(
        other_machine, guest, "context", "add", "lab", endpoint,
        "--token-file", str(secret), "--use",
    )  # fmt: skip
    assert added.code == 0, added.err
    listed = _skulkctl(other_machine, guest, "nodes", "-o", "json")
    assert listed.code == 0, listed.err
    assert json.loads(listed.out)["items"][0]["id"] == node.node_id

    secret.write_text("x" * 40)
    wrong = _skulkctl(other_machine, guest, "nodes")
    assert wrong.code == 4, wrong.err
    assert (node.home / "cluster.secret").read_text().strip() not in node.said()


def test_another_machine_gets_in_with_a_token_where_the_secret_is_for_nodes_only(
    daemon: StartDaemon, other_machine: str, tmp_path: Path
) -> None:
    node = daemon(listen="0.0.0.0:0", config="api: {secret_for_operators: false}\n")
    guest = tmp_path / "guest"
    guest.mkdir()
    endpoint = f"{HERE}:{node.port}"
    made = skulkctl(
        *("token", "create", "guest", "--scope", "read", "-q"),
        home=node.home,
        endpoint=node.url.replace("0.0.0.0", "127.0.0.1"),
    )
    token = guest / "guest.token"
    token.write_text((node.home / "cluster.secret").read_text())
    token.chmod(0o600)
    _skulkctl(
        other_machine,
        guest,
        "context",
        "add",
        "lab",
        endpoint,
        "--token-file",
        str(token),
        "--use",
    )
    refused = _skulkctl(other_machine, guest, "nodes")
    assert refused.code == 4, refused.err
    assert "does not accept the cluster secret" in refused.err
    token.write_text(made.out)
    listed = _skulkctl(other_machine, guest, "nodes", "-q")
    assert listed.code == 0, listed.err
    forbidden = _skulkctl(other_machine, guest, "trace", "on")
    assert forbidden.code == 4, forbidden.err
    assert "lacks the scope operate" in forbidden.err
    assert f"by token guest from {THERE} -> 403" in node.said()

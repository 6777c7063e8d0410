"""Two daemons whose links, store and API are encrypted, set up and used with skulkctl alone."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from skulkd.store.imports.tiny_model import TINY_MODEL_ID, make_tiny_model
from tests.cluster_live.cluster import free_port
from tests.cluster_live.live_node import ENVIRON
from tests.daemon_process import DaemonProcess, spawn_daemon, wait_until
from tests.skulkctl_process import skulkctl

DEADLINE_S = 300.0
SECRET = "correct-horse-battery-staple"


@dataclass
class Lab:
    """An operator's home with the authority, and the daemons it has made certificates for."""

    base: Path
    store_port: int = field(default_factory=free_port)
    fabrics: list[int] = field(default_factory=lambda: [free_port(), free_port()])
    nodes: list[DaemonProcess] = field(default_factory=list)

    @property
    def operator(self) -> Path:
        return self.base / "operator"

    def ctl(self, *arguments: str, code: int = 0) -> str:
        done = skulkctl(*arguments, home=self.operator)
        assert done.code == code, done.err
        return done.out if code == 0 else done.err

    def start(self, name: str, number: int) -> None:
        """As docs/security.md has it: copy three files, add the lines that were printed."""
        home = self.base / name
        home.mkdir()
        lines = self.ctl("tls", "issue", name)
        (home / "tls").mkdir(mode=0o700)
        for file in (f"{name}.pem", f"{name}.key", "ca.pem"):
            (home / "tls" / file).write_bytes((self.operator / "tls" / file).read_bytes())
        store = (
            f"model_store:\n  store_host: kite1\n  store_http_host: 127.0.0.1\n"
            f"  store_port: {self.store_port}\n  store_path: {self.base}/store\n"
        )
        (home / "skulk.yaml").write_text(f"{lines}{store}")
        secret = home / "cluster.secret"
        secret.write_text(SECRET)
        secret.chmod(0o600)
        listen, other = self.fabrics[number], self.fabrics[1 - number]
        daemon = spawn_daemon(
            home,
            *("--name", name, "--fabric-listen", f"127.0.0.1:{listen}"),
            *("--peer", f"127.0.0.1:{other}"),
            environ=ENVIRON,
        )
        self.nodes.append(daemon)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    lab.operator.mkdir()
    try:
        lab.ctl("tls", "init", "--name", "lab")
        for number, name in enumerate(("kite1", "kite2")):
            lab.start(name, number)
        for node in lab.nodes:
            node.wait_ready()
        endpoints = [node.url for node in reversed(lab.nodes)]
        ca = str(lab.operator / "tls" / "ca.pem")
        lab.ctl("context", "add", "lab", *endpoints, "--ca", ca, "--use")
        yield lab
    finally:
        for node in lab.nodes:
            node.kill()


def links(lab: Lab) -> list[str]:
    """Names of nodes that have measured a way to another one, over HTTPS."""
    nodes = json.loads(lab.ctl("api", "GET", "/v1/cluster"))["nodes"]
    assert all(one["tls"] for node in nodes for one in node["apiAddresses"])
    return sorted(node["name"] for node in nodes if node["links"])


def test_a_cluster_is_encrypted_everywhere_and_works(lab: Lab) -> None:
    wait_until(lambda: links(lab) == ["kite1", "kite2"], "both nodes to reach each other")
    make_tiny_model(lab.base / "original")
    model = next(path for path in (lab.base / "original").iterdir() if path.is_dir())
    # By kite2, which passes it on to the store on kite1.
    lab.ctl("model", "import", str(model), "--id", TINY_MODEL_ID)
    assert lab.ctl("store", "-q").split() == [TINY_MODEL_ID]
    lab.ctl("place", TINY_MODEL_ID, "--only", "kite2", "--wait", "--timeout", "10m")
    assert lab.ctl("chat", TINY_MODEL_ID, "hello", "--max-tokens", "4")
    staged = json.loads(lab.ctl("storage", "--all-nodes", "-o", "json"))["items"]
    assert {item["name"]: len(item["models"]) for item in staged} == {"kite1": 0, "kite2": 1}
    lab.ctl("timeline", "--check")
    uses = [
        (node["name"], one["use"])
        for node in json.loads(lab.ctl("nodes", "-o", "json"))["items"]
        for one in node["certificates"]
    ]
    assert uses == [(n, use) for n in ("kite1", "kite2") for use in ("api", "cluster")]
    assert_closed_to_strangers(lab)


def assert_closed_to_strangers(lab: Lab) -> None:
    for node in lab.nodes:
        plain = node.url.replace("https://", "http://")
        assert "speaks TLS only" in lab.ctl("status", "--endpoint", plain, code=5)
        # Without the context nobody has said whom to trust.
        assert "not trusted here" in lab.ctl("status", "--endpoint", node.url, code=5)
    with closing(http.client.HTTPConnection("127.0.0.1", lab.store_port, timeout=600)) as store:
        store.request("GET", "/health", headers={"Authorization": f"Bearer {SECRET}"})
        with pytest.raises(http.client.RemoteDisconnected):
            store.getresponse()
    assert ask_without_certificate(lab) == b""


def ask_without_certificate(lab: Lab) -> bytes:
    """What the store says to a client that trusts it and shows nothing itself."""
    context = ssl.create_default_context(cafile=lab.operator / "tls" / "ca.pem")
    with (
        socket.create_connection(("127.0.0.1", lab.store_port), 600) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        try:
            secure.sendall(b"GET /health HTTP/1.1\r\nHost: store\r\n\r\n")
            return secure.recv(1)
        except OSError:
            return b""

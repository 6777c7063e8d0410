"""What a tap on the switch between two machines shows of a prompt, with and without TLS."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.cluster.certificates import make_certificates
from tests.cluster_live.chatting import question
from tests.cluster_live.cluster import make_cluster, tiny_model
from tests.cluster_live.lan import Lan, lan, lan_missing, tcp_payloads
from tests.cluster_live.test_tls import with_tls
from tests.sharded.group import placed

pytestmark = pytest.mark.skipif(lan_missing() is not None, reason=str(lan_missing()))

PROMPT = "the heron waits below the weir until the eels come down"


def prompt_ids(base: Path) -> bytes:
    """The prompt's tokens as an order of rank 0 lists them."""
    [file] = tiny_model(base).rglob("tokenizer.json")
    ids = Tokenizer.from_file(str(file)).encode(PROMPT, add_special_tokens=False).ids
    assert len(ids) > 20
    return ",".join(str(token) for token in ids).encode()


def record_a_request(network: Lan, base: Path, certificates: Path | None) -> list[bytes]:
    """All TCP traffic while two machines start a group, serve one request and end it."""
    made = make_cluster(base / "cluster", 2, machines=network.machines)
    try:
        for node in made.nodes if certificates else []:
            with_tls(node, certificates or base, node.name)
        with network.recorded(base / "frames"):
            made.start()
            made.wait_formed()
            made.wait_links()
            with placed(made, made.nodes) as group:
                assert_no_secret_in_processes(group.pids(), made.secret)
                body = question(8, messages=[{"role": "user", "content": PROMPT}])
                answer = made.nodes[0].post("/v1/chat/completions", body)
                assert answer.status == 200, answer
    finally:
        made.end()
    return tcp_payloads(base / "frames")


def assert_no_secret_in_processes(pids: set[int], secret: str) -> None:
    for pid in pids:
        for file in ("cmdline", "environ"):
            assert secret.encode() not in Path(f"/proc/{pid}/{file}").read_bytes()


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_the_prompt_is_on_the_wire_only_without_tls(tmp_path: Path, encrypted: bool) -> None:
    certificates = tmp_path / "certificates" if encrypted else None
    if certificates is not None:
        make_certificates(certificates, "kite1", "kite2")
    with lan(2) as network:
        flows = record_a_request(network, tmp_path, certificates)
    base = tmp_path / "cluster"
    assert sum(map(len, flows)) > 10_000
    # The plain run shows that the tap sees what it should not see with TLS.
    for what in (prompt_ids(base), PROMPT.encode()):
        assert any(what in flow for flow in flows) is not encrypted

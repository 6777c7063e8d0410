"""Daemons whose links are encrypted: configured in `skulk.yaml`, refused without a certificate."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.certificates import make_certificates
from tests.cluster_live.cluster import LiveCluster, is_formed, make_cluster
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import spawn_daemon, wait_until

DEADLINE_S = 300.0


def with_tls(node: LiveNode, files: Path, name: str) -> None:
    """As an operator does it: three lines in the settings file."""
    file = node.home / "skulk.yaml"
    tls = f"tls: {{certificate: {name}.pem, key: {name}.key, authority: ca.pem}}"
    told = tls.replace(": ", f": {files}/").replace(f"tls: {files}/", "tls: ")
    text = file.read_text(encoding="utf-8").replace("cluster: {", f"cluster: {{{told}, ", 1)
    file.write_text(text, encoding="utf-8")


def refusals(node: LiveNode) -> list[str]:
    return [line for line in node.daemon.stderr if "does not let this node in" in line]


def test_daemons_form_over_tls_and_refuse_who_has_no_certificate(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    make_certificates(ours, "kite1", "kite2", "kite3")
    make_certificates(theirs, "kite5")
    made = make_cluster(tmp_path / "cluster", 3, arguments=("--no-worker",))
    try:
        for node in made.nodes:
            with_tls(node, ours, node.name)
        made.start()
        made.wait_formed()
        strangers = [made.add(arguments=("--no-worker",), model=False) for _ in range(2)]
        with_tls(strangers[1], theirs, "kite5")
        made.start(*strangers)
        assert_refused(made, strangers)
        assert is_formed(made.nodes[:3])
    finally:
        made.end()


def assert_refused(made: LiveCluster, strangers: list[LiveNode]) -> None:
    reasons = ["its links are encrypted; set cluster.tls", "not of this node's authority"]
    for stranger, reason in zip(strangers, reasons, strict=True):
        wait_until(lambda one=stranger: is_formed([one]), "it to lead itself", DEADLINE_S)
        wait_until(lambda one=stranger: refusals(one), "it to say why", DEADLINE_S)
        [line] = refusals(stranger)
        assert reason in line
        assert set(stranger.state()["nodeIdentities"]) == {stranger.node_id}
    ids = {node.node_id for node in made.nodes[:3]}
    for node in made.nodes[:3]:
        assert {one["nodeId"] for one in node.view()["nodes"]} == ids


def test_a_daemon_whose_certificate_is_missing_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "skulk.yaml").write_text(
        "cluster: {tls: {certificate: /nowhere/a.pem, key: /nowhere/a.key, authority: /nowhere/ca}}"
    )
    daemon = spawn_daemon(tmp_path)
    try:
        assert daemon.wait_exit(DEADLINE_S) == 78
        assert "cluster.tls.certificate: /nowhere/a.pem: No such file or directory" in daemon.said()
    finally:
        daemon.kill()

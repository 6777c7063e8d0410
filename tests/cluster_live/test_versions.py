"""Daemons of different versions: they stay apart, and both say who the other is."""

from __future__ import annotations

from pathlib import Path

from skulkd import __version__
from skulkd.cluster.handshake import PROTOCOL
from tests.cluster_live.cluster import is_formed, make_cluster
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until

DEADLINE_S = 300.0


def told(node: LiveNode) -> list[str]:
    return [line for line in node.daemon.stderr if "does not join" in line]


def test_another_protocol_stays_outside_and_a_newer_minor_version_joins(tmp_path: Path) -> None:
    made = make_cluster(tmp_path / "cluster", 1, arguments=("--no-worker",))
    [old] = made.nodes
    versions = {"kite2": f"{PROTOCOL[0]}.99", "kite3": f"{PROTOCOL[0] + 1}.4"}
    for version in versions.values():
        environ = {"SKULK_TEST_CLUSTER_PROTOCOL": version}
        made.add(peers=[old], arguments=("--no-worker",), environ=environ, model=False)
    minor, major = made.nodes[1:]
    try:
        made.start()
        wait_until(lambda: is_formed([old, minor]), "the newer minor version", DEADLINE_S)
        wait_until(lambda: is_formed([major]), "the other version to lead itself", DEADLINE_S)
        for node in (old, major):
            wait_until(lambda one=node: told(one), f"{node.name} to say why", DEADLINE_S)
        ours = ".".join(map(str, PROTOCOL))
        runs = f"it runs skulkd {__version__} with cluster protocol"
        [line] = told(old)
        assert f"kite3 ({major.node_id}) does not join: {runs} {versions['kite3']}" in line
        # It may meet kite2 first.
        [line] = wait_until(
            lambda: [one for one in told(major) if "kite1" in one],
            "kite3 to name kite1",
            DEADLINE_S,
        )
        assert f"kite1 ({old.node_id}) does not join: {runs} {ours}" in line
        assert len(told(major)) <= 2, "once for each of the others"
    finally:
        made.end()

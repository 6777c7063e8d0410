"""One node answers for others: diagnostics, restarts and runners elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest

from skulkd.api import cluster, diagnostics
from skulkd.api.services import Services
from skulkd.wire.cluster import NodePresence
from skulkd.wire.events import InstanceCreated, NodeGatheredInfo
from skulkd.wire.gathered import NodeNetworkInterfaces
from skulkd.wire.ids import NodeId
from tests.api.in_process import serving, some_services
from tests.daemon.builders import an_instance
from tests.peer_mesh import MeshPeers, peer_mesh

A, B, GONE = NodeId("node-a"), NodeId("node-b"), NodeId("node-gone")


@contextlib.asynccontextmanager
async def node_a(
    home: Path, *others: str
) -> AsyncIterator[tuple[aiohttp.ClientSession, Services, list[MeshPeers]]]:
    """A client of node a, node b, and whoever else is there."""
    a, b, *rest = peer_mesh(A, B, *others)
    near = some_services(home, peers=a)
    far = some_services(home, peers=b)
    async with serving(near) as url, aiohttp.ClientSession(url) as client:
        yield client, far, [b, *rest]
    far.monitor.close()


async def test_diagnostics_list_every_node_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnostics.DIAGNOSE, "deadline_s", 5.0)
    async with node_a(tmp_path, "node-mute", "node-odd") as (client, far, (_, mute, odd)):
        odd.serve(diagnostics.DIAGNOSE.name, nonsense)
        mute.serve(diagnostics.DIAGNOSE.name, nonsense)
        async with client.get("/v1/diagnostics/cluster") as answer:
            body = await answer.json()
        by_node = {one["nodeId"]: one for one in body["nodes"]}
        assert list(by_node) == [A, B, "node-mute", "node-odd"]
        assert by_node[B]["diagnostics"]["runtime"]["nodeId"] == far.identity.node_id
        assert by_node[A]["ok"]
        assert not by_node["node-odd"]["ok"]
        assert "does not know" in by_node["node-odd"]["error"]


async def test_nodes_that_do_not_answer_are_not_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnostics.DIAGNOSE, "deadline_s", 0.01)
    a, mute = peer_mesh(A, "node-mute")
    near = some_services(tmp_path, peers=a)
    info = NodeNetworkInterfaces(interfaces=[])
    near.journal.append(NodeGatheredInfo(node_id=GONE, when=datetime.now(UTC), info=info))

    async def hang(_asker: NodeId, _body: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    mute.serve(diagnostics.DIAGNOSE.name, hang)
    async with serving(near) as url, aiohttp.ClientSession(url) as client:
        async with client.get("/v1/diagnostics/cluster") as answer:
            nodes = (await answer.json())["nodes"]
        assert [one["nodeId"] for one in nodes] == [A, "node-mute", GONE]
        assert [one["ok"] for one in nodes] == [True, False, False]
        assert "PeerSilent" in nodes[1]["error"]
        assert "not in the cluster" in nodes[2]["error"]
        async with client.get("/v1/diagnostics/cluster/node-mute") as answer:
            assert answer.status == 502
            assert "did not answer" in (await answer.json())["error"]["message"]


async def test_one_node_is_asked_by_its_id(tmp_path: Path) -> None:
    async with node_a(tmp_path) as (client, _, _):
        for node in (A, B):
            async with client.get(f"/v1/diagnostics/cluster/{node}") as answer:
                assert (await answer.json())["runtime"]["nodeId"] == node
        async with client.get("/v1/diagnostics/cluster/nobody") as answer:
            assert answer.status == 404


async def test_a_restart_is_passed_on(tmp_path: Path) -> None:
    async with node_a(tmp_path) as (client, far, _):
        async with client.post("/admin/restart", params={"node_id": "nobody"}) as answer:
            assert answer.status == 404
        async with client.post("/admin/restart", params={"node_id": B}) as answer:
            assert (answer.status, await answer.json()) == (
                200,
                {"status": "restart_sent", "node_id": B},
            )
        assert far.lifecycle.restart_pending
        async with client.post("/admin/restart", params={"node_id": B}) as answer:
            assert answer.status == 409
            assert (await answer.json())["status"] == "restart_already_pending"


async def test_runners_of_other_nodes_are_found_there(tmp_path: Path) -> None:
    async with node_a(tmp_path) as (client, _, _):
        body = {"taskId": "t1"}
        for node, says in ((B, "Runner not found: r1"), ("nobody", "Node not reachable: nobody")):
            path = f"/v1/diagnostics/cluster/{node}/runners/r1/cancel"
            async with client.post(path, json=body) as answer:
                assert answer.status == 404
                assert (await answer.json())["error"]["message"] == says


async def test_the_cluster_is_told_with_everybody_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.HELLO, "deadline_s", 5.0)
    async with node_a(tmp_path, "node-odd") as (client, far, (_, odd)):

        async def ahead(_asker: NodeId, _body: bytes) -> bytes:
            hello = NodePresence(
                name="odd", version="9.9", now=time.time() + 3600, uptime_seconds=1
            )
            # A newer version says more than this one knows.
            return json.dumps({**json.loads(hello.model_dump_json()), "new": 1}).encode()

        odd.serve(cluster.HELLO.name, ahead)
        async with client.get("/v1/cluster") as answer:
            body = await answer.json()
        near, other, strange = body["nodes"]
        assert (body["masterNodeId"], body["session"]["id"]) == (A, f"{A}/0")
        assert [one["nodeId"] for one in body["nodes"]] == [A, B, "node-odd"]
        assert [one["isMaster"] for one in body["nodes"]] == [True, False, False]
        assert (near["clockSkewSeconds"], near["isLocal"]) == (0.0, True)
        assert other["version"] == far.identity.version
        assert abs(other["clockSkewSeconds"]) <= other["clockSkewErrorSeconds"] + 0.001
        assert strange["ok"]
        assert 3500 < strange["clockSkewSeconds"] < 3700
        # Two nodes that are each their own master say so.
        assert (other["session"], strange["session"]) == (f"{B}/0", None)
        far_peers = far.peers
        assert isinstance(far_peers, MeshPeers)
        far_peers.serve(cluster.HELLO.name, nonsense)
        async with client.get("/v1/cluster") as answer:
            members = {one["nodeId"]: one for one in (await answer.json())["nodes"]}
        assert not members[B]["ok"]
        assert "does not know" in members[B]["error"]


async def test_a_master_that_holds_no_rank_is_no_warning_of_the_node_list(tmp_path: Path) -> None:
    near = some_services(tmp_path, peers=peer_mesh(A, B)[0])
    near.journal.append(InstanceCreated(instance=an_instance("i1", (B,))))
    async with serving(near) as url, aiohttp.ClientSession(url) as client:
        async with client.get("/v1/diagnostics/node") as answer:
            [warning] = (await answer.json())["warnings"]
        assert "is not a placement node" in warning
        async with client.get("/v1/cluster") as answer:
            assert (await answer.json())["nodes"][0]["warnings"] == []


async def nonsense(_asker: NodeId, _body: bytes) -> bytes:
    return b'{"generatedAt": 1}'

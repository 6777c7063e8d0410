"""`POST /v1/cluster/forget` on one node: what the master decides, and how a refusal is told."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from skulkd.api.services import Services
from skulkd.cluster.commands import NO_MASTER
from skulkd.cluster.core import Core
from skulkd.observe.event_log import EventLog, json_chunks
from skulkd.peers import PeerRefused
from skulkd.wire.events import NodeLossCleared, NodeLost, TestEvent
from skulkd.wire.ids import NodeId
from tests.api.in_process import serving, some_services
from tests.local_commands import leading_core

OWN = NodeId("node-test")
NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)


def a_master() -> Core:
    """kite1, which has lost kite3."""
    core = leading_core(OWN)
    core.append(100.0, NodeLost(name="kite3", node_id=NodeId("node-3"), since=NOON))
    return core


async def ask(node: Services, *bodies: Any) -> list[tuple[int, Any]]:
    """Forget each; then the list of lost nodes."""
    answers = []
    async with serving(node) as url, aiohttp.ClientSession(url) as client:
        for body in bodies:
            async with client.post("/v1/cluster/forget", json=body) as answer:
                answers.append((answer.status, await answer.json()))
        async with client.get("/v1/cluster") as answer:
            answers.append((answer.status, (await answer.json())["lost"]))
    return answers


async def test_a_lost_node_is_listed_and_forgotten_once(tmp_path: Path) -> None:
    first, again, (_, left) = await ask(
        some_services(tmp_path, core=a_master()), {"name": "kite3"}, {"name": "kite3"}
    )
    assert first == (
        200,
        {"name": "kite3", "nodeId": "node-3", "since": "2026-03-04T12:00:00.000000Z"},
    )
    assert again[0] == 404
    assert left == []


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"name": "kite1"}, 409, "kite1 is in the cluster"),
        ({"name": "kite9"}, 404, "no lost node is named kite9; lost nodes: kite3"),
        ({"name": ""}, 422, "name"),
        ({"name": "x" * 257}, 422, "name"),
        ({}, 422, "name"),
    ],
)
async def test_what_cannot_be_forgotten_changes_nothing(
    tmp_path: Path, body: dict[str, str], status: int, says: str
) -> None:
    (code, answer), (_, left) = await ask(some_services(tmp_path, core=a_master()), body)
    assert code == status
    assert says in str(answer)
    assert [one["name"] for one in left] == ["kite3"]
    assert left[0]["since"] == "2026-03-04T12:00:00.000000Z"


async def test_without_a_master_it_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody(_kind: str, _body: bytes, _deadline_s: float) -> bytes:
        raise PeerRefused(OWN, NO_MASTER, "no master answered in 10 s; try again")

    node = some_services(tmp_path)
    monkeypatch.setattr(node.lost_nodes, "_send", nobody)
    (code, answer), _ = await ask(node, {"name": "kite3"})
    assert code == 503
    assert "try again" in answer["error"]["message"]


def test_the_reference_never_sees_events_that_it_cannot_parse() -> None:
    log = EventLog()
    assert b"".join(json_chunks(log)) == b"[]"
    log.append(NodeLost(name="kite3", since=NOON))
    assert b"".join(json_chunks(log)) == b"[]"
    for event in (TestEvent(), NodeLossCleared(name="kite3", cause="returned"), TestEvent()):
        log.append(event)
    assert b"".join(json_chunks(log, chunk_events=1)).count(b"TestEvent") == 2
    assert b"NodeLo" not in b"".join(json_chunks(log))

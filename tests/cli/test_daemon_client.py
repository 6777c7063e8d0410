"""The typed client: endpoints in order, one kept connection, tolerant models, codes, both kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from skulkctl.contexts import Context, Target
from skulkctl.daemon.client import AsyncDaemon, Daemon, Endpoints
from skulkctl.daemon.reading import Unreadable, read_model
from skulkctl.daemon.state import ClusterState, Part
from skulkctl.errors import CliError, DeadlinePassed, NotFound, Refused, Unreachable
from skulkctl.polling import poll_until
from skulkd.wire.cluster import ClusterView
from skulkd.wire.ids import ModelId
from skulkd.wire.machine import NodeNetworkInfo
from skulkd.wire.placement import PlaceInstanceParams
from skulkd.wire.state import State
from tests.cli.stock import HANG, KITE1, Reply, StockNode, error_body, stock_node
from tests.cli.test_stock_connections import a_free_port
from tests.daemon_process import DaemonProcess, wait_until


@dataclass
class CountingNode(StockNode):
    """Also remembers which connection each request came on, and gives the state an ETag."""

    connections: list[Any] = field(default_factory=list)
    conditions: list[str | None] = field(default_factory=list)

    async def _handle(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        self.connections.append(request.transport.get_extra_info("peername"))
        self.conditions.append(request.headers.get("If-None-Match"))
        if self.conditions[-1] == '"one"':
            return web.Response(status=304, headers={"ETag": '"one"'})
        answer = await super()._handle(request)
        if request.path == "/state":
            answer.headers["ETag"] = '"one"'
        return answer


@pytest.fixture
def node() -> Iterator[CountingNode]:
    started = CountingNode(stock_node().answers)
    started.start()
    yield started
    started.stop()


def a_target(*endpoints: str, token: str | None = None) -> Target:
    return Target(Context("lab", endpoints), token)


@pytest.fixture
def daemon(node: CountingNode) -> Iterator[Daemon]:
    client = Daemon(a_target(node.url))
    yield client
    client.close()


def test_requests_share_one_connection(daemon: Daemon, node: CountingNode) -> None:
    assert daemon.state().node_name(KITE1) == "kite1"
    daemon.within(5.0).members(daemon.state().node_ids)
    assert len(node.connections) >= 3
    assert len(set(node.connections)) == 1


def test_a_state_that_has_not_changed_is_not_sent_again(daemon: Daemon, node: CountingNode) -> None:
    first, second = daemon.state(), daemon.state()
    assert node.conditions == [None, '"one"']
    assert second.node_ids == first.node_ids != []


def test_a_dead_endpoint_is_passed_over_and_the_other_is_kept(node: CountingNode) -> None:
    dead = f"http://127.0.0.1:{a_free_port()}"
    daemon = Daemon(a_target(dead, node.url))
    daemon.state()
    assert daemon.endpoint == node.url
    daemon.close()


def test_a_change_without_an_answer_is_sent_once(node: CountingNode) -> None:
    node.on("POST", "/place_instance", HANG)
    daemon = Daemon(a_target(node.url, node.url.replace("127.0.0.1", "localhost")), 0.2)
    with pytest.raises(DeadlinePassed, match="no answer to POST /place_instance"):
        daemon.place(PlaceInstanceParams(model_id=ModelId("a/b")), ensure=False)
    assert daemon.sent_change
    assert [seen.method for seen in node.seen] == ["POST"]
    daemon.close()


def test_what_was_not_sent_changed_nothing() -> None:
    daemon = Daemon(a_target(f"http://127.0.0.1:{a_free_port()}"))
    with pytest.raises(Unreachable, match="no daemon reachable"):
        daemon.delete("x")
    assert not daemon.sent_change


def test_the_token_goes_to_the_peer_it_is_for(node: CountingNode) -> None:
    secret = Target(Context("lab", (node.url,)), None, local_secret="s3cret")
    with_secret, with_token = Daemon(secret), Daemon(a_target(node.url, token="given"))
    with_secret.state()
    with_token.state()
    assert [seen.authorization for seen in node.seen] == [None, "Bearer given"]
    with_secret.close()
    with_token.close()


async def test_the_same_calls_can_be_awaited(node: CountingNode, daemon: Daemon) -> None:
    waiting = AsyncDaemon(a_target(node.url))
    state = await waiting.state()
    members = await waiting.members(state.node_ids)
    assert members == daemon.members(daemon.state().node_ids)
    node.on("DELETE", "/instance/x", Reply(404, error_body("Instance not found", 404)))
    with pytest.raises(NotFound, match="not found: DELETE /instance/x"):
        await waiting.delete("x")
    await waiting.close()


def test_our_own_daemon_is_told_by_its_name(shared_daemon: DaemonProcess) -> None:
    daemon = Daemon(a_target(shared_daemon.url))
    state = daemon.state()
    assert daemon.can_restart_runners() is True
    assert [node.name for node in daemon.cluster().nodes] == ["kite1"]
    assert [node.ok for node in daemon.storage(local=True).nodes] == [True]
    assert daemon.placements().waiting == []
    refusal = wait_until(lambda: _refusal_of_an_unknown_model(daemon), "the hub is given up")
    assert (type(refusal), refusal.code) == (NotFound, "unknown_model")
    with pytest.raises(Refused) as no_store:
        daemon.store_registry()
    assert no_store.value.code == "store_not_configured"
    assert state.node_ids == [shared_daemon.node_id]
    daemon.close()


def _refusal_of_an_unknown_model(daemon: Daemon) -> CliError | None:
    """None while asking the hub takes too long, as it may on a busy machine."""
    with pytest.raises(CliError) as raised:
        daemon.place(PlaceInstanceParams(model_id=ModelId("no/such-model")), ensure=False)
    return None if raised.value.code == "hub_timeout" else raised.value


def test_every_endpoint_is_described_and_has_a_docstring() -> None:
    described = {name: one for name, one in vars(Endpoints).items() if not name.startswith("_")}
    assert all(one.__doc__ for name, one in described.items() if not name.startswith("can_"))
    assert len(described) > 20


def test_the_parts_of_a_state_are_those_of_the_contract() -> None:
    parts = {name: part for name, part in vars(ClusterState).items() if isinstance(part, Part)}
    for name, part in parts.items():
        annotation: Any = State.model_fields[name].annotation
        assert annotation.__args__[1] == part.model, name
    assert len(parts) == 12


def test_a_part_that_does_not_match_is_left_out_and_named() -> None:
    told: list[str] = []
    memory = {"inBytes": 1}
    good = {
        "ramTotal": memory,
        "ramAvailable": memory,
        "swapTotal": memory,
        "swapAvailable": memory,
    }
    document = {
        "nodeMemory": {"a": {**good, "fromTheFuture": 1}, "b": {"ramTotal": "much"}, "c": None},
        "nodeHealth": {"a": {"level": "ok"}, "b": {"level": "on fire"}},
        "runners": {"r": {"RunnerReady": {}}, "s": {"RunnerOfTheFuture": {}}},
    }
    state = ClusterState(document, note=told.append)
    assert list(state.node_memory) == ["a"]
    assert {node: health.level for node, health in state.node_health.items()} == {
        "a": "ok",
        "b": "ok",
    }
    assert list(state.runners) == ["r"]
    assert any("s:" in line for line in told)


def test_items_of_a_list_are_left_out_one_by_one() -> None:
    good = {"name": "en0", "ipAddress": "10.0.0.1"}
    document = {"interfaces": [{"name": "a"}, good, {"ipAddress": 3}, good, "x"]}
    network = read_model(NodeNetworkInfo, document, lambda text: None)
    assert [one.name for one in network.interfaces] == ["en0", "en0"]


@pytest.mark.parametrize("document", [None, [], "text", 3, {"nodes": []}])
def test_what_lacks_the_essential_is_unreadable(document: object) -> None:
    with pytest.raises(Unreadable):
        read_model(ClusterView, document, lambda text: None)


def test_polling_looks_at_least_once_and_forgives_only_requests_for_a_while() -> None:
    looks: list[float] = []
    assert poll_until(looks.append, lambda _: None, 0.0) is None
    assert len(looks) == 1

    answers = iter([CliError("busy"), None, "there"])

    def fetch(_left_s: float) -> str | None:
        answer = next(answers)
        if isinstance(answer, CliError):
            raise answer
        return answer

    forgiven: list[str] = []
    found = poll_until(
        fetch,
        lambda fetched: fetched,
        600,
        every_s=0,
        patience_s=600,
        on_error=lambda error: forgiven.append(error.what),
    )
    assert (found, forgiven) == ("there", ["busy"])
    with pytest.raises(CliError, match="for good"):
        poll_until(lambda left_s: left_s, _fail, 600, every_s=0, patience_s=600)
    with pytest.raises(CliError, match="for good"):
        poll_until(_fail, lambda _: None, 600, every_s=0)


def _fail(_given: float) -> None:
    raise CliError("for good")

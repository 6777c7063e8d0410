"""What every event does to the state, and that the state stays whole under any of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from skulkd.cluster.reducer import OutOfOrder, apply
from skulkd.wire import events as wire
from skulkd.wire.events import (
    ChunkGenerated,
    CustomModelCardAdded,
    CustomModelCardDeleted,
    Event,
    InputChunkReceived,
    InstanceCreated,
    InstanceDeleted,
    NodeDownloadProgress,
    NodeGatheredInfo,
    NodeTimedOut,
    RunnerStatusUpdated,
    TaskAcknowledged,
    TaskCreated,
    TaskDeleted,
    TaskFailed,
    TaskStatusUpdated,
    TestEvent,
    TopologyEdgeCreated,
    TopologyEdgeDeleted,
    TracesCollected,
    TracesMerged,
    TracingStateChanged,
)
from skulkd.wire.gathered import (
    GatheredInfo,
    MacThunderboltConnections,
    MacThunderboltIdentifiers,
    NodeNetworkInterfaces,
    ThunderboltBridgeInfo,
    ThunderboltConnection,
)
from skulkd.wire.ids import CommandId, InstanceId, NodeId, RunnerId, TaskId
from skulkd.wire.machine import (
    NetworkInterfaceInfo,
    ThunderboltBridgeStatus,
    ThunderboltInterface,
)
from skulkd.wire.runners import RunnerReady, RunnerShutdown, RunnerStatus
from skulkd.wire.state import State
from skulkd.wire.tasks import StartWarmup
from skulkd.wire.topology import Connection, Edge, Multiaddr, RdmaConnection, SocketConnection
from tests.daemon.builders import (
    MODEL,
    A,
    B,
    C,
    D,
    a_card,
    a_failed_download,
    a_pending_download,
    a_task,
    an_instance,
    later,
    replay,
)

ETH0 = NodeNetworkInterfaces(interfaces=[NetworkInterfaceInfo(name="eth0", ip_address="10.0.0.1")])


def gathered(node: NodeId, info: GatheredInfo = ETH0, seconds: float = 0) -> NodeGatheredInfo:
    return NodeGatheredInfo(node_id=node, when=later(seconds), info=info)


def runner(name: str, status: RunnerStatus | None = None) -> RunnerStatusUpdated:
    return RunnerStatusUpdated(
        runner_id=RunnerId(name), runner_status=RunnerReady() if status is None else status
    )


def socket_edge(source: NodeId, sink: NodeId, address: str = "10.0.0.2") -> Connection:
    edge = SocketConnection(sink_multiaddr=Multiaddr(address=f"/ip4/{address}/tcp/52415"))
    return Connection(source=source, sink=sink, edge=edge)


def ports(node: NodeId, *names: str) -> NodeGatheredInfo:
    """Thunderbolt ports whose domain ids are `<node>.<name>`."""
    interfaces = [
        ThunderboltInterface(rdma_interface=f"rdma_{name}", domain_uuid=f"{node}.{name}")
        for name in names
    ]
    return gathered(node, MacThunderboltIdentifiers(interfaces=interfaces))


def cables(node: NodeId, *links: tuple[str, str]) -> NodeGatheredInfo:
    connections = [ThunderboltConnection(source_uuid=a, sink_uuid=b) for a, b in links]
    return gathered(node, MacThunderboltConnections(connections=connections))


def bridge(node: NodeId, *, enabled: bool) -> NodeGatheredInfo:
    status = ThunderboltBridgeStatus(enabled=enabled, exists=True)
    return gathered(node, ThunderboltBridgeInfo(status=status))


def test_an_event_that_is_not_the_next_one_is_refused() -> None:
    state = replay(TestEvent())
    for index in (0, 2, 7):
        with pytest.raises(OutOfOrder):
            apply(state, TestEvent(), index)
    assert apply(state, TestEvent(), 1).last_event_applied_idx == 1


def test_a_reading_makes_a_node_known() -> None:
    state = replay(gathered(A), gathered(B, seconds=3), gathered(A, seconds=5))
    assert state.topology.nodes == [A, B]
    assert state.last_seen == {A: later(5), B: later(3)}
    assert state.node_network[A].interfaces == ETH0.interfaces


def test_runners_live_and_die_with_their_instance() -> None:
    state = replay(
        InstanceCreated(instance=an_instance("i1", (A, B))),
        InstanceCreated(instance=an_instance("i2", (B,))),
        runner("i1-r0"), runner("i1-r1"), runner("i2-r0"), runner("nobody"),
        TaskCreated(task_id=TaskId("t1"), task=a_task("t1", "i1")),
        TaskCreated(task_id=TaskId("t2"), task=a_task("t2", "i2")),
    )  # fmt: skip
    assert set(state.runners) == {"i1-r0", "i1-r1", "i2-r0"}
    state = replay(InstanceDeleted(instance_id=InstanceId("i1")), state=state)
    assert set(state.instances) == {"i2"}
    assert set(state.runners) == {"i2-r0"}
    assert set(state.tasks) == {"t2"}
    assert replay(runner("i1-r0"), state=state).runners == state.runners


def test_an_instance_placed_anew_keeps_only_runners_it_still_has() -> None:
    state = replay(
        InstanceCreated(instance=an_instance("i1", (A, B))), runner("i1-r0"), runner("i1-r1"),
        InstanceCreated(instance=an_instance("i1", (A,))),
    )  # fmt: skip
    assert set(state.runners) == {"i1-r0"}


def test_a_runner_that_shut_down_is_no_longer_listed() -> None:
    state = replay(InstanceCreated(instance=an_instance()), runner("i1-r0"))
    assert replay(runner("i1-r0", RunnerShutdown()), state=state).runners == {}


def test_a_task_carries_its_error_until_it_has_another_status() -> None:
    task_id = TaskId("t1")
    failed = TaskFailed(task_id=task_id, error_type="Boom", error_message="it broke")
    state = replay(TaskCreated(task_id=task_id, task=a_task()), failed)
    task = state.tasks[task_id]
    assert task.task_status == "Failed"
    assert (task.error_type, task.error_message) == ("Boom", "it broke")  # type: ignore[union-attr]
    state = replay(TaskStatusUpdated(task_id=task_id, task_status="Running"), state=state)
    task = state.tasks[task_id]
    assert (task.task_status, task.error_type) == ("Running", None)  # type: ignore[union-attr]
    assert replay(TaskDeleted(task_id=task_id), state=state).tasks == {}


def test_a_task_without_error_fields_can_fail_too() -> None:
    task = StartWarmup(task_id=TaskId("w"), instance_id=InstanceId("i1"))
    failed = TaskFailed(task_id=TaskId("w"), error_type="Boom", error_message="x")
    state = replay(TaskCreated(task_id=TaskId("w"), task=task), failed)
    assert state.tasks[TaskId("w")].task_status == "Failed"
    State.model_validate_json(state.model_dump_json())


@pytest.mark.parametrize(
    "event",
    [
        TaskStatusUpdated(task_id=TaskId("x"), task_status="Running"),
        TaskFailed(task_id=TaskId("x"), error_type="a", error_message="b"),
        TaskDeleted(task_id=TaskId("x")),
        InstanceDeleted(instance_id=InstanceId("x")),
        NodeTimedOut(node_id=NodeId("x")),
        TopologyEdgeDeleted(conn=socket_edge(A, B)),
        TestEvent(),
        TaskAcknowledged(task_id=TaskId("x")),
        ChunkGenerated(command_id=CommandId("c"), chunk={}),
        InputChunkReceived(command_id=CommandId("c"), chunk={}),
        TracesCollected(task_id=TaskId("x"), rank=0, traces=[]),
        TracesMerged(task_id=TaskId("x"), traces=[]),
        CustomModelCardAdded(model_card=a_card()),
        CustomModelCardDeleted(model_id=MODEL),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_concerns_nothing_known_changes_nothing_but_the_index(event: Event) -> None:
    before = replay(gathered(A), InstanceCreated(instance=an_instance()), runner("i1-r0"))
    after = replay(event, state=before)
    assert after == before.model_copy(update={"last_event_applied_idx": 3})


def test_a_node_that_timed_out_takes_everything_of_its_own_along() -> None:
    state = replay(
        gathered(A), gathered(B), gathered(C),
        TopologyEdgeCreated(conn=socket_edge(A, B)), TopologyEdgeCreated(conn=socket_edge(B, A)),
        TopologyEdgeCreated(conn=socket_edge(A, C)),
        ports(B, "en2"), bridge(B, enabled=True),
        InstanceCreated(instance=an_instance("i1", (A, B))), runner("i1-r0"), runner("i1-r1"),
        InstanceCreated(instance=an_instance("i2", (A,))), runner("i2-r0"),
        TaskCreated(task_id=TaskId("t1"), task=a_task("t1", "i1")),
        TaskCreated(task_id=TaskId("t2"), task=a_task("t2", "i2")),
        NodeDownloadProgress(download_progress=a_pending_download(B)),
        NodeTimedOut(node_id=B),
    )  # fmt: skip
    assert state.topology.nodes == [A, C]
    assert state.topology.connections.keys() == {A}
    assert state.topology.connections[A].keys() == {C}
    for rows in (
        state.last_seen, state.node_network, state.node_thunderbolt,
        state.node_thunderbolt_bridge, state.downloads,
    ):  # fmt: skip
        assert B not in rows
    assert set(state.instances) == {"i2"}
    assert set(state.runners) == {"i2-r0"}
    assert set(state.tasks) == {"t2"}


def test_a_download_has_one_entry_per_node_and_model() -> None:
    other = wire.ModelId("org/other")
    state = replay(
        NodeDownloadProgress(download_progress=a_pending_download(A)),
        NodeDownloadProgress(download_progress=a_pending_download(A, other)),
        NodeDownloadProgress(download_progress=a_pending_download(B)),
        NodeDownloadProgress(download_progress=a_failed_download(A)),
    )
    assert state.downloads == {
        A: [a_failed_download(A), a_pending_download(A, other)],
        B: [a_pending_download(B)],
    }


def test_an_edge_is_there_once_and_goes_alone() -> None:
    one, two = socket_edge(A, B), socket_edge(A, B, "10.0.0.9")
    state = replay(*(TopologyEdgeCreated(conn=conn) for conn in (one, two, one)))
    assert state.topology.nodes == [A, B]
    assert state.topology.connections == {A: {B: [one.edge, two.edge]}}
    state = replay(TopologyEdgeDeleted(conn=one), state=state)
    assert state.topology.connections == {A: {B: [two.edge]}}
    state = replay(TopologyEdgeDeleted(conn=two), state=state)
    assert state.topology.connections == {}


def test_tracing_follows_its_last_change() -> None:
    assert replay(TracingStateChanged(enabled=True)).tracing_enabled
    assert not replay(
        TracingStateChanged(enabled=True), TracingStateChanged(enabled=False)
    ).tracing_enabled


def test_cables_become_edges_between_known_ports_and_replace_the_old_ones() -> None:
    state = replay(
        ports(A, "en2", "en3"),
        ports(B, "en2"),
        TopologyEdgeCreated(conn=socket_edge(A, B)),
        cables(A, ("A.en2", "B.en2"), ("A.en3", "unknown"), ("B.en2", "A.en2")),
    )
    socket: Edge = socket_edge(A, B).edge
    rdma = RdmaConnection(source_rdma_iface="rdma_en2", sink_rdma_iface="rdma_en2")
    assert state.topology.connections == {A: {B: [socket, rdma]}}
    assert replay(cables(A), state=state).topology.connections == {A: {B: [socket]}}


def _ring(*nodes: NodeId) -> list[Event]:
    """Cables from every node to the next, round to the first."""
    events: list[Event] = [ports(node, "en1", "en2") for node in nodes]
    following = [*nodes[1:], nodes[0]]
    pairs = zip(nodes, following, strict=True)
    return events + [cables(one, (f"{one}.en2", f"{two}.en1")) for one, two in pairs]


def test_a_loop_of_bridges_is_reported_while_it_is_closed() -> None:
    bridges = [bridge(node, enabled=True) for node in (A, B, C)]
    state = replay(*_ring(A, B, C), *bridges)
    assert state.thunderbolt_bridge_cycles == [[A, B, C]]
    assert replay(bridge(B, enabled=False), state=state).thunderbolt_bridge_cycles == []
    assert replay(NodeTimedOut(node_id=C), state=state).thunderbolt_bridge_cycles == []
    assert replay(cables(A), state=state).thunderbolt_bridge_cycles == []


def test_a_chain_or_a_pair_of_bridges_is_no_loop() -> None:
    bridges = [bridge(node, enabled=True) for node in (A, B, C, D)]
    chain = [ports(n, "en1", "en2") for n in (A, B, C)] + [
        cables(A, ("A.en2", "B.en1")),
        cables(B, ("B.en2", "C.en1"), ("B.en1", "A.en2")),
    ]
    assert replay(*chain, *bridges).thunderbolt_bridge_cycles == []
    tail = [*_ring(A, B, C), ports(D, "en1"), cables(D, ("D.en1", "A.en1")), *bridges]
    assert replay(*tail).thunderbolt_bridge_cycles == [[A, B, C]]


NODES = st.sampled_from([A, B, C])
INSTANCES = st.sampled_from(["i1", "i2"])
TASKS = st.sampled_from(["t1", "t2"]).map(TaskId)
SOME_EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(gathered, NODES),
    NODES.map(lambda node: NodeTimedOut(node_id=node)),
    st.builds(
        lambda name, nodes: InstanceCreated(instance=an_instance(name, tuple(nodes))),
        INSTANCES,
        st.lists(NODES, min_size=1, max_size=3, unique=True),
    ),
    INSTANCES.map(lambda name: InstanceDeleted(instance_id=InstanceId(name))),
    st.builds(lambda name, rank: runner(f"{name}-r{rank}"), INSTANCES, st.integers(0, 2)),
    st.builds(
        lambda task, name: TaskCreated(task_id=task, task=a_task(task, name)), TASKS, INSTANCES
    ),
    TASKS.map(lambda task: TaskDeleted(task_id=task)),
    st.builds(lambda a, b: TopologyEdgeCreated(conn=socket_edge(a, b)), NODES, NODES),
    st.builds(lambda a, b: TopologyEdgeDeleted(conn=socket_edge(a, b)), NODES, NODES),
    NODES.map(lambda node: NodeDownloadProgress(download_progress=a_pending_download(node))),
)


@given(st.lists(SOME_EVENTS, max_size=30))
@settings(max_examples=60, deadline=None)
def test_any_history_leaves_a_whole_state(history: list[Event]) -> None:
    state = replay(*history)
    owned = {
        runner_id
        for instance in state.instances.values()
        for runner_id in instance.shard_assignments.runner_to_shard
    }
    assert set(state.runners) <= owned
    assert set(state.last_seen) <= set(state.topology.nodes)
    for source, sinks in state.topology.connections.items():
        assert {source, *sinks} <= set(state.topology.nodes)
        assert sinks
        assert all(sinks.values())
    assert state.last_event_applied_idx == len(history) - 1
    assert State.model_validate_json(state.model_dump_json()) == state


@given(st.lists(SOME_EVENTS, max_size=20))
@settings(max_examples=30, deadline=None)
def test_events_that_went_over_the_wire_give_the_same_state(history: list[Event]) -> None:
    adapter: TypeAdapter[list[Event]] = TypeAdapter(list[Event])
    copies = adapter.validate_json(adapter.dump_json(history, by_alias=False))
    assert replay(*copies) == replay(*history)

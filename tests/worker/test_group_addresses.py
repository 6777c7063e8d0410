"""Where ranks listen and dial: from the instance, with fresh ports."""

from __future__ import annotations

import socket
import sys

import pytest

from skulkd.wire.ids import InstanceId, NodeId
from skulkd.wire.instances import Host, MlxJacclInstance, MlxRingInstance
from skulkd.worker.group_addresses import (
    NoAddress,
    RankSecurity,
    ReservedPort,
    hkdf,
    listen_addresses,
    nodes_by_rank,
    rdma_coordinator,
    rdma_hosts,
    ring_address,
    ring_hosts,
)
from tests.worker.group_rig import a_group

NODES = [NodeId(f"node-{rank}") for rank in range(4)]


def ring(views: list[list[str]]) -> MlxRingInstance:
    """`views[i][j]` is how rank i dials rank j."""
    group = a_group(NODES[: len(views)])
    assert isinstance(group, MlxRingInstance)
    hosts = {
        node: [Host(ip=ip, port=1) for ip in view] for node, view in zip(NODES, views, strict=False)
    }
    return group.model_copy(update={"hosts_by_node": hosts})


SELF, NONE = "0.0.0.0", "198.51.100.1"
FOUR = ring(
    [
        [SELF, "10.0.0.1", NONE, "10.0.0.3"],
        ["10.0.0.9", SELF, "10.0.0.2", NONE],
        [NONE, "10.0.0.1", SELF, "10.0.0.3"],
        ["10.1.1.9", NONE, "10.0.0.2", SELF],
    ]
)


def test_ranks_are_in_order_whatever_the_order_of_the_map() -> None:
    assert nodes_by_rank(FOUR) == NODES


def test_a_rank_listens_where_it_is_dialled() -> None:
    assert [listen_addresses(FOUR, rank) for rank in range(4)] == [
        ["10.0.0.9", "10.1.1.9"],
        ["10.0.0.1"],
        ["10.0.0.2"],
        ["10.0.0.3"],
    ]
    # The ring of a rank is dialled by the rank before it only.
    assert [ring_address(FOUR, rank) for rank in range(4)] == [
        "10.1.1.9",
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.3",
    ]


def test_a_rank_that_nobody_can_dial_does_not_listen_everywhere() -> None:
    bare = ring([[SELF, NONE], ["10.0.0.9", SELF]])
    with pytest.raises(NoAddress, match="by which others reach rank 1 on node-1"):
        listen_addresses(bare, 1)


def test_everybody_can_dial_rank_0_and_its_neighbours() -> None:
    hosts = ring_hosts(FOUR, 2, "10.0.0.2", [41, 42, 43, 44])
    assert [(host.ip, host.port) for host in hosts] == [
        ("10.0.0.9", 41),
        ("10.0.0.1", 42),
        ("10.0.0.2", 43),
        ("10.0.0.3", 44),
    ]


def test_an_instance_without_addresses_names_the_ranks() -> None:
    bare = ring([[SELF, NONE], ["10.0.0.9", SELF]])
    with pytest.raises(NoAddress, match="rank 0 on node-0 reaches rank 1 on node-1"):
        ring_hosts(bare, 0, "10.0.0.9", [1, 2])


def test_the_rdma_coordinator_has_a_fresh_port_too() -> None:
    shards = FOUR.shard_assignments
    jaccl = MlxJacclInstance(
        instance_id=FOUR.instance_id,
        shard_assignments=shards,
        jaccl_devices=[],
        jaccl_coordinators={NODES[0]: "0.0.0.0:5", NODES[1]: "10.0.0.9:5"},
    )
    assert rdma_coordinator(jaccl, 0, [41, 42]) == "0.0.0.0:41"
    assert rdma_coordinator(jaccl, 1, [41, 42]) == "10.0.0.9:41"
    assert [listen_addresses(jaccl, rank) for rank in (0, 1)] == [["10.0.0.9"], ["127.0.0.1"]]
    # All meet at rank 0; nobody dials the others, which are only named in messages.
    met = [Host(ip="10.0.0.9", port=41), Host(ip=NODES[1], port=42)]
    assert [rdma_hosts(jaccl, rank, [41, 42]) for rank in (0, 1)] == [met, met]
    lost = jaccl.model_copy(update={"jaccl_coordinators": {NODES[0]: "0.0.0.0:5"}})
    with pytest.raises(NoAddress, match="rank 1 reaches rank 0"):
        rdma_hosts(lost, 1, [41, 42])


def test_a_held_port_can_be_bound_by_a_runner_and_by_nobody_else() -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux has more than one loopback address")
    hold = ReservedPort(["127.0.0.1", "127.0.0.2"])
    try:
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", hold.port))
        hold.hand_over()
        for address in ("127.0.0.1", "127.0.0.2"):
            with socket.create_server((address, hold.port)):
                pass
    finally:
        hold.release()


def test_an_address_of_another_machine_is_refused() -> None:
    for addresses in (["203.0.113.7"], ["127.0.0.1", "203.0.113.7"]):
        with pytest.raises(OSError, match=r"cannot listen at 203\.0\.113\.7.*not its own"):
            ReservedPort(addresses)


def test_keys_differ_by_group_attempt_and_secret() -> None:
    security, other = RankSecurity("first"), RankSecurity("second")
    keys = [
        security.key(InstanceId("a"), 1),
        security.key(InstanceId("a"), 2),
        security.key(InstanceId("b"), 1),
        other.key(InstanceId("a"), 1),
    ]
    assert len(set(keys)) == 4
    assert security.key(InstanceId("a"), 1) == keys[0]
    assert "first" not in repr(security)


def test_the_derivation_is_that_of_the_standard() -> None:
    # RFC 5869, test case 1, cut to the first block of output.
    made = hkdf(b"\x0b" * 22, bytes(range(13)), bytes(range(0xF0, 0xFA)))
    assert made.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"

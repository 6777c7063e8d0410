"""Orders about instances and lost nodes go to the master; what it decides them on."""

from __future__ import annotations

from collections.abc import Mapping

from skulkd.api.lost_nodes import FORGET, decide_forget
from skulkd.api.placing import (
    CREATE,
    DELETE,
    PLACE,
    REPAIR,
    Placements,
    decided_bytes,
    refusal_data,
)
from skulkd.cluster.cluster import Cluster
from skulkd.cluster.commands import Commands, Decide, Decision
from skulkd.cluster.messages import Placement
from skulkd.peers import PeerRefused, Peers
from skulkd.placement.orders import Decided, DeleteOrder
from skulkd.placement.refusals import Refusal, UnknownInstance
from skulkd.wire.events import InstanceDeleted
from skulkd.wire.ids import InstanceId


def have_the_master_decide(peers: Peers, cluster: Cluster, placements: Placements) -> Commands:
    """From now on an order is decided once, by the master."""
    commands = Commands(peers, cluster)

    def decision(kind: str) -> Decide:
        def decide(body: bytes) -> Decision:
            try:
                decided = decide_order(placements, cluster.core.ledger.waiting, kind, body)
            except Refusal as refusal:
                data = refusal_data(refusal)
                raise PeerRefused(peers.node_id, refusal.kind, str(refusal), data) from refusal
            return Decision(decided.events, decided_bytes(decided))

        return decide

    for kind in (PLACE, CREATE, DELETE, REPAIR):
        commands.register(kind, decision(kind))
    commands.register(FORGET, lambda body: decide_forget(cluster.core, body))
    placements.through(commands.send)
    return commands


def decide_order(
    placements: Placements, waiting: Mapping[InstanceId, Placement], kind: str, body: bytes
) -> Decided:
    """What the master makes of an order. Raises Refusal.

    An instance that lost its node and waits for a place is not in the state, but an operator who
    has seen its name must be able to give it up.
    """
    try:
        return placements.decide(kind, body)
    except UnknownInstance:
        homeless = waiting.get(DeleteOrder.model_validate_json(body).instance_id)
        if kind != DELETE or homeless is None:
            raise
        instance = homeless.instance
        return Decided((InstanceDeleted(instance_id=instance.instance_id),), instance)

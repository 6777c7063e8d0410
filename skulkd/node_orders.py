"""Commands go to the master, wherever it is; what it decides them on."""

from __future__ import annotations

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
from skulkd.api.token_admin import CREATE as CREATE_TOKEN
from skulkd.api.token_admin import REVOKE as REVOKE_TOKEN
from skulkd.api.token_admin import decide_create, decide_revoke
from skulkd.api.tracing_switch import TRACING, TracingSwitch
from skulkd.cluster.cluster import Cluster
from skulkd.cluster.commands import Commands, Decide
from skulkd.cluster.commits import Decision
from skulkd.cluster.ledger import Ledger
from skulkd.peers import PeerRefused, Peers
from skulkd.placement.orders import Decided, DeleteOrder
from skulkd.placement.refusals import Refusal, UnknownInstance
from skulkd.wire.events import InstanceDeleted


def have_the_master_decide(
    peers: Peers, cluster: Cluster, placements: Placements, tracing: TracingSwitch
) -> Commands:
    """From now on a command is decided once, by the master, and written before it is answered."""
    commands = Commands(peers, cluster)

    def decision(kind: str) -> Decide:
        def decide(body: bytes, ledger: Ledger) -> Decision:
            try:
                decided = decide_order(placements, ledger, kind, body)
            except Refusal as refusal:
                data = refusal_data(refusal)
                raise PeerRefused(peers.node_id, refusal.kind, str(refusal), data) from refusal
            return Decision(decided.events, decided_bytes(decided))

        return decide

    for kind in (PLACE, CREATE, DELETE, REPAIR):
        commands.register(kind, decision(kind))
    placements.through(commands.send)
    commands.register(FORGET, lambda body, on: decide_forget(cluster.core, on.membership, body))
    commands.register(
        TRACING, lambda body, on: Decision(tracing.decide(body, on.state.tracing_enabled))
    )
    tracing.through(commands.send)
    me = peers.node_id
    commands.register(CREATE_TOKEN, lambda body, on: decide_create(me, on.tokens, body))
    commands.register(REVOKE_TOKEN, lambda body, on: decide_revoke(me, on.tokens, body))
    return commands


def decide_order(placements: Placements, ledger: Ledger, kind: str, body: bytes) -> Decided:
    """What the master makes of an order. Raises Refusal.

    An instance that lost its node and waits for a place is not in the state, but an operator who
    has seen its name must be able to give it up.
    """
    try:
        return placements.decide(kind, body, ledger.state)
    except UnknownInstance:
        homeless = ledger.waiting.get(DeleteOrder.model_validate_json(body).instance_id)
        if kind != DELETE or homeless is None:
            raise
        instance = homeless.instance
        return Decided((InstanceDeleted(instance_id=instance.instance_id),), instance)

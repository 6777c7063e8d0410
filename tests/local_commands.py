"""Commands that are decided at once on this node, for tests of rooms without a cluster."""

from __future__ import annotations

from skulkd.cluster.commands import Commands, Decide
from skulkd.cluster.core import Core
from skulkd.cluster.journal import Journal
from skulkd.cluster.journal_replica import JournalReplica
from skulkd.cluster.leader import LeaderPolicy
from skulkd.cluster.replica import Replica
from skulkd.wire.ids import NodeId


def leading_core(node_id: NodeId) -> Core:
    """A node that is alone and its own master."""
    core = Core(node_id, "kite1", LeaderPolicy(replan=lambda _: "nothing is planned here"))
    core.start(100.0, alone=True)
    return core


class LocalCommands(Commands):
    """Decides on the replica's state; tokens and members are those of `core`."""

    def __init__(self, replica: Replica, journal: Journal, core: Core) -> None:
        self._decisions: dict[str, Decide] = {}
        self._replica = replica
        self._journal = journal
        self._core = core

    async def send(self, kind: str, body: bytes, deadline_s: float) -> bytes:
        draft = JournalReplica()
        draft.state = self._replica.state
        draft.tokens, draft.membership = self._core.journal.tokens, self._core.journal.membership
        decision = self._decisions[kind](body, draft)
        for event in decision.events:
            self._core.journal.membership.apply(event)
            self._core.journal.tokens.apply(event)
            self._journal.append(event)
        return decision.answer

"""Members that left without notice: the list, and the command that removes one from it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from skulkd.cluster.commands import Commands
from skulkd.cluster.commits import Decision
from skulkd.cluster.core import Core
from skulkd.cluster.journal_replica import JournalReplica
from skulkd.cluster.messages import LostMember
from skulkd.peers import PeerRefused
from skulkd.wire.cluster import ForgetAnswer
from skulkd.wire.events import NodeLossCleared

FORGET = "forget_node"
DEADLINE_S = 9.0
NOT_LOST, UNKNOWN = "node_not_lost", "unknown_node"


class LostNodes:
    """The lost nodes that this node knows of."""

    def __init__(self, core: Core, commands: Commands) -> None:
        self._core = core
        self._send = commands.send
        commands.register(FORGET, self._decide)

    def missing(self) -> Sequence[LostMember]:
        return self._core.missing_members()

    async def forget(self, name: str) -> ForgetAnswer:
        """Raises PeerRefused: `NOT_LOST`, `UNKNOWN`, or no master."""
        answer = await self._send(FORGET, json.dumps({"name": name}).encode(), DEADLINE_S)
        return ForgetAnswer.model_validate_json(answer)

    def _decide(self, body: bytes, journal: JournalReplica) -> Decision:
        name = str(json.loads(body)["name"])
        lost, me = journal.membership.lost, self._core.node_id
        if name in self._core.connected.alive().values():
            text = f"{name} is in the cluster; stop its daemon instead"
            raise PeerRefused(me, NOT_LOST, text)
        member = lost.get(name)
        if member is None:
            names = ", ".join(sorted(lost)) or "none"
            raise PeerRefused(me, UNKNOWN, f"no lost node is named {name}; lost nodes: {names}")
        answer = ForgetAnswer(name=name, node_id=member.node_id, since=member.since)
        event = NodeLossCleared(name=name, cause="forgotten")
        return Decision([event], answer.model_dump_json().encode())

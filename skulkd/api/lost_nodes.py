"""Members that left without notice: listing them, and giving one up by the master's decision."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence

from skulkd.api.errors import ApiError
from skulkd.cluster.commands import CLUSTER_DOWN, NO_MASTER
from skulkd.cluster.commits import STORAGE_FAILED, STORAGE_FULL, Decision
from skulkd.cluster.core import Core
from skulkd.cluster.membership import Membership
from skulkd.cluster.messages import LostMember
from skulkd.peers import PeerRefused
from skulkd.wire.cluster import ForgetAnswer
from skulkd.wire.events import NodeLossCleared

FORGET = "forget_node"
DEADLINE_S = 9.0
NOT_LOST, UNKNOWN = "node_not_lost", "unknown_node"
COMMAND_STATUS = {
    NO_MASTER: 503,
    CLUSTER_DOWN: 503,
    STORAGE_FAILED: 503,
    STORAGE_FULL: 507,
}
"""For what may go wrong with any command to the master."""
_STATUS = {NOT_LOST: 409, UNKNOWN: 404, **COMMAND_STATUS}

Send = Callable[[str, bytes, float], Awaitable[bytes]]


async def no_master(_kind: str, _body: bytes, _deadline_s: float) -> bytes:
    raise ApiError(503, "this node is not part of a cluster yet; try again")


class LostNodes:
    """What handlers use; a node without a cluster has lost nobody."""

    def __init__(
        self, missing: Callable[[], Sequence[LostMember]] = tuple, send: Send = no_master
    ) -> None:
        self.missing = missing
        self._send = send

    async def forget(self, name: str) -> ForgetAnswer:
        """Raises ApiError: 404 for an unknown name, 409 for a node that is here."""
        body = json.dumps({"name": name}).encode()
        try:
            answer = await self._send(FORGET, body, DEADLINE_S)
        except PeerRefused as refused:
            status = _STATUS.get(refused.kind, 502)
            headers = {"Retry-After": "5"} if status == 503 else {}
            raise ApiError(status, str(refused), headers=headers) from refused
        return ForgetAnswer.model_validate_json(answer)


def decide_forget(core: Core, membership: Membership, body: bytes) -> Decision:
    """What the master makes of it. Raises PeerRefused."""
    name = str(json.loads(body)["name"])
    member = membership.lost.get(name)
    if name in core.roster.living().values():
        text = f"{name} is in the cluster; stop its daemon instead"
        raise PeerRefused(core.node_id, NOT_LOST, text)
    if member is None:
        lost = ", ".join(sorted(membership.lost)) or "none"
        text = f"no lost node is named {name}; lost nodes: {lost}"
        raise PeerRefused(core.node_id, UNKNOWN, text)
    answer = ForgetAnswer(name=name, node_id=member.node_id, since=member.since)
    event = NodeLossCleared(name=name, cause="forgotten")
    return Decision([event], answer.model_dump_json().encode())

"""The current master and session, for the API and diagnostics."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skulkd.wire.ids import NodeId

if TYPE_CHECKING:
    from skulkd.cluster.core import Core


@dataclass(frozen=True, slots=True)
class MasterStatus:
    """The master's session as this node sees it. `since` is local monotonic time."""

    master_node_id: NodeId | None
    session: str | None
    """Id of the session; None while there is no master."""
    since: float = field(default_factory=time.monotonic)


def session_age_s(core: Core) -> float | None:
    """Age of the session; None without a master, or when it does not report the age."""
    if core.leader is not None:
        return core.now - core.leader.began
    master = core.connected.get(core.session.master) if core.session is not None else None
    heartbeat = master.heartbeat if master is not None else None
    if (
        master is None
        or heartbeat is None
        or heartbeat.session_s is None
        or heartbeat.session != core.session
    ):
        return None
    return heartbeat.session_s + core.now - master.heard_at


GetMasterStatus = Callable[[], MasterStatus]

"""Who is master now: what the rooms above may know of an election."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skulkd.wire.ids import NodeId

if TYPE_CHECKING:
    from skulkd.cluster.core import Core


@dataclass(frozen=True, slots=True)
class Reign:
    """One master's session as this node sees it. `since` is of the local monotonic clock."""

    master_node_id: NodeId | None
    session: str | None
    """Names the session on every message; None while there is no master."""
    since: float = field(default_factory=time.monotonic)


def session_age_s(core: Core) -> float | None:
    """How long the master has led; None when there is none or it does not say."""
    if core.ruling is not None:
        return core.now - core.ruling.began
    master = core.roster.get(core.session.master) if core.session is not None else None
    beat = master.beat if master is not None else None
    if master is None or beat is None or beat.session_s is None or beat.session != core.session:
        return None
    return beat.session_s + core.now - master.heard_at


GetReign = Callable[[], Reign]


def lone_reign(node_id: NodeId) -> GetReign:
    """A node that is alone is its own master for as long as it runs."""
    reign = Reign(node_id, f"{node_id}/0")
    return lambda: reign

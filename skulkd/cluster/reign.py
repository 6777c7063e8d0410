"""Who is master now: what the rooms above may know of an election."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from skulkd.wire.ids import NodeId


@dataclass(frozen=True, slots=True)
class Reign:
    """One master's session as this node sees it. `since` is of the local monotonic clock."""

    master_node_id: NodeId | None
    session: str | None
    """Names the session on every message; None while there is no master."""
    since: float = field(default_factory=time.monotonic)


GetReign = Callable[[], Reign]


def lone_reign(node_id: NodeId) -> GetReign:
    """A node that is alone is its own master for as long as it runs."""
    reign = Reign(node_id, f"{node_id}/0")
    return lambda: reign

"""Calls about work: how much the nodes have, and taking nodes out of rotation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skulkctl.daemon.calls import Call, call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skulkd.wire.load import ClusterLoad, DrainAnswer


def load() -> Call[ClusterLoad]:
    """Active and queued work, and free slots, of every node."""
    from skulkd.wire.load import ClusterLoad

    return call("GET", "/v1/load", ClusterLoad)


def drain(node_ids: Sequence[str], *, draining: bool) -> Call[DrainAnswer]:
    """Take nodes out of rotation, or bring them back."""
    from skulkd.wire.load import DrainAnswer, DrainRequest

    wanted = DrainRequest(draining=draining, node_ids=list(node_ids))
    return call("PUT", "/v1/drain", DrainAnswer, body=wanted)

"""A new place for an instance that lost a node: what the master asks the planner.

The planner needs to know who has the files. Asking takes time and the master must not wait, so
the first question only begins to ask; a moment later the answer is there.
"""

from __future__ import annotations

import asyncio
import logging
import time

from skulkd.api.placing import Placements
from skulkd.placement.candidates import Circumstances
from skulkd.placement.orders import NodeNews, with_news
from skulkd.placement.records import left_out
from skulkd.placement.refusals import Refusal
from skulkd.placement.repairs import replanned
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.instances import Instance
from skulkd.wire.state import State

NEWS_AGE_S = 10.0

log = logging.getLogger(__name__)


class Replanning:
    """Plans under the instance's own id; `placements` is set once it exists."""

    def __init__(self) -> None:
        self.placements: Placements | None = None
        self._news: dict[ModelId, tuple[float, dict[NodeId, NodeNews]]] = {}
        self._asking: dict[ModelId, asyncio.Task[None]] = {}

    def __call__(self, instance: Instance) -> Instance | str:
        """Where it may go, or why it cannot; an empty reason while that is being asked."""
        placements, model_id = self.placements, instance.shard_assignments.model_id
        if placements is None:
            return ""
        asked_at, news = self._news.get(model_id, (float("-inf"), {}))
        if time.monotonic() - asked_at > NEWS_AGE_S:
            self._ask(placements, model_id)
            return ""
        around = with_news(placements.around(), news)
        state = placements.state()
        unwanted = left_out(instance, state)
        found = _replanned(instance, state, around, unwanted)
        if isinstance(found, str) and unwanted:
            # Its nodes are gone: a node that was not wanted is better than no model.
            return _replanned(instance, state, around, frozenset())
        return found

    def _ask(self, placements: Placements, model_id: ModelId) -> None:
        if model_id in self._asking:
            return

        async def ask() -> None:
            try:
                news = await placements.news(model_id)
                now = time.monotonic()
                fresh = {key: one for key, one in self._news.items() if now - one[0] < NEWS_AGE_S}
                self._news = {**fresh, model_id: (now, news)}
            finally:
                del self._asking[model_id]

        self._asking[model_id] = asyncio.create_task(ask())


def _replanned(
    instance: Instance, state: State, around: Circumstances, unwanted: frozenset[NodeId]
) -> Instance | str:
    try:
        return replanned(instance, state, around, unwanted)
    except Refusal as refusal:
        return str(refusal)

"""Dispatching a request: to the ready instance with the fewest requests, or waiting for one.

Instances on any node count. Knows the state, this node's worker and the relay to other nodes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from skulkd.cluster.journal import Journal
from skulkd.peers import Peers
from skulkd.placement.records import rank_zero_node
from skulkd.placement.refusals import Refusal
from skulkd.requests.embedding_params import EmbeddingParams, RequestParams
from skulkd.requests.errors import RequestError
from skulkd.requests.loading import ModelLoader, as_request_error
from skulkd.requests.meter import RequestMeter
from skulkd.requests.open_request import OpenRequest
from skulkd.requests.prefixes import Blocks, PrefixMemory
from skulkd.requests.remote_tasks import NotAccepted, RemoteTasks
from skulkd.requests.selection import (
    best_first,
    card_of,
    failure_of,
    is_ready,
    without_draining,
)
from skulkd.runner.protocol import Output, PrefillProgress
from skulkd.store.errors import StoreUnreachableError
from skulkd.store.retention import companions_of
from skulkd.wire.ids import InstanceId, ModelId, NodeId, TaskId
from skulkd.wire.instances import Instance
from skulkd.wire.state import State
from skulkd.wire.tasks import ServedTask, TextEmbedding, TextGeneration
from skulkd.worker.refusals import NoSuchInstance, NotReady, QueueFull, RequestTooLarge
from skulkd.worker.task_stream import TaskStream
from skulkd.worker.worker import Worker

_POLL_S = 0.2
_MAX_LOADS = 3
"""So often one request has its model placed; a model that is unloaded in between is rare."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WaitLimits:
    """How long requests wait for a model that is not ready, and how many of them may."""

    ready_s: float = 600.0
    failed_s: float = 3.0
    """A runner that is restarted after a failure is ready within seconds."""
    max_waiting: int = 32
    lost_s: float = 5.0
    """A model that lost its node is placed again within seconds, or fits nowhere."""
    answer_s: float = 9.0
    """A request whose model lost its node waits at least this long in all."""


@dataclass(frozen=True, slots=True)
class DispatchDeps:
    """What the cluster knows and the state does not contain."""

    unplaced: Callable[[], Sequence[Instance]] = tuple
    """Instances that lost a node, or were stopped, and wait for a placement."""
    has_master: Callable[[], bool] = lambda: True
    """False on a node that has just started and does not know the cluster's state."""
    node_name: Callable[[NodeId], str] = str
    """The name of a node, also of a lost one."""
    stalled: Callable[[NodeId], Mapping[ModelId, str]] = lambda _node: {}
    """Models whose files a node waits for while the store does not answer, and why."""
    prefix_routing: bool = True
    """Whether an instance that has read the beginning of a prompt is preferred."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why waiting may be in vain, and when to give up. Times are monotonic seconds."""

    reason: str
    since: float
    until: float
    kind: str | None = None
    """For programs, where there is one."""


class Dispatcher:
    """Submits requests to the worker of this node or of another."""

    def __init__(
        self,
        peers: Peers,
        state: Callable[[], State],
        journal: Journal,
        worker: Worker,
        limits: WaitLimits | None = None,
        deps: DispatchDeps | None = None,
    ) -> None:
        self._peers = peers
        self._node_id = peers.node_id
        self._deps = deps or DispatchDeps()
        self._state = state
        self._journal = journal
        self._worker = worker
        self._remote = RemoteTasks(peers)
        self._sent: dict[TaskId, InstanceId] = {}
        self._limits = limits or WaitLimits()
        self._by_prefix = self._deps.prefix_routing
        self._draining: Callable[[], Container[NodeId]] = frozenset
        self._loader: ModelLoader | None = None
        self.waiting = 0
        """Requests that wait for a model to become ready."""
        self.meter = RequestMeter()
        self.prefixes = PrefixMemory()
        journal.on_change(lambda: self.prefixes.watch(state()))

    def avoid(self, draining: Callable[[], Container[NodeId]]) -> None:
        """Send nothing to these nodes while another instance is ready."""
        self._draining = draining

    def load_with(self, loader: ModelLoader) -> None:
        """Let requests have models placed, where the settings allow it."""
        self._loader = loader

    def unplaced(self) -> Sequence[Instance]:
        """Instances that lost a node, or were stopped, and wait for a placement."""
        return self._deps.unplaced()

    def readiness(self) -> list[tuple[ModelId, bool]]:
        """The model of every instance, and whether it is ready; an unplaced one is not."""
        state = self._state()
        placed = [
            (instance.shard_assignments.model_id, is_ready(state, instance))
            for instance in state.instances.values()
        ]
        unplaced = [
            (instance.shard_assignments.model_id, False)
            for instance in self.unplaced()
            if instance.instance_id not in state.instances
        ]
        return placed + unplaced

    def _placed(self, model: str) -> list[Instance]:
        known = [*self._state().instances.values(), *self.unplaced()]
        return [one for one in known if one.shard_assignments.model_id == model]

    def instances_of(self, model: str) -> list[Instance]:
        """Raises RequestError: the model is not placed, or there is no master to know it."""
        instances = self._placed(model)
        if not instances and not self._deps.has_master():
            message = "this node has no master and does not know what is placed; ask again"
            raise RequestError("not_ready", message, retry_after_s=1)
        if not instances:
            raise RequestError("not_placed", f"No instance found for model {model[:200]}")
        return instances

    async def ensure_placed(self, model: str, keep_alive_s: float | None = None) -> list[Instance]:
        """The instances of a model, which is placed first where requests may do so.

        Raises RequestError, also with the reason for which it cannot be placed.
        """
        loader = self._loader
        if loader is None or not loader.enabled or self._placed(model):
            return self.instances_of(model)
        try:
            known = await loader.load(model, keep_alive_s)
        except Refusal as refusal:
            raise as_request_error(refusal, model) from refusal
        if not known:
            name = model[:200]
            message = f"{name} is not placed, and no node or store has its files"
            message += f"\nhint: skulkctl model pull {name}"
            raise RequestError("not_placed", message)
        return self.instances_of(model)

    async def _instances_for(self, request: OpenRequest, params: RequestParams) -> list[Instance]:
        """Like `ensure_placed`, a limited number of times for one request."""
        if not self._placed(params.model):
            request.loads += 1
            if request.loads > _MAX_LOADS:
                return self.instances_of(params.model)
        return await self.ensure_placed(params.model, params.keep_alive_s)

    async def submit(self, request: OpenRequest, params: RequestParams) -> TaskStream | None:
        """Submit to a ready instance; None when none is ready yet. Raises RequestError."""
        instances = await self._instances_for(request, params)
        full: QueueFull | None = None
        blocks = self._blocks(instances, params)
        for instance in self._candidates(instances, blocks):
            try:
                return await self._submit_to(instance, request, params, blocks)
            except QueueFull as refusal:
                full = full or refusal
            except NotAccepted as refusal:
                request.unreachable = str(refusal) if refusal.silent else request.unreachable
            except (NotReady, NoSuchInstance) as refusal:
                # The state will show it in a moment.
                _log.debug("instance %s: %s", instance.instance_id, refusal)
            except RequestTooLarge as refusal:
                raise RequestError("too_large", str(refusal)) from refusal
        if full is not None:
            raise RequestError("busy", str(full), retry_after_s=full.retry_after_s) from full
        return None

    def _blocks(self, instances: Sequence[Instance], params: RequestParams) -> Blocks:
        """Empty where there is no choice, or no prefix cache: an embedding model has none."""
        if isinstance(params, EmbeddingParams) or len(instances) < 2 or not self._by_prefix:
            return ()
        return self.prefixes.blocks(params)

    def _candidates(self, instances: Sequence[Instance], blocks: Blocks) -> list[Instance]:
        known = self.prefixes.known_chars(instances, blocks) if blocks else {}
        ready = best_first(self._state(), instances, self._sent, known)
        return without_draining(ready, self._draining())

    async def _submit_to(
        self,
        instance: Instance,
        request: OpenRequest,
        params: RequestParams,
        blocks: Blocks,
    ) -> TaskStream:
        task = self._task(instance, request, params)
        # Counted at once: the state learns of it only when the runner's node has journaled it.
        self._sent[task.task_id] = instance.instance_id
        request.on_close(lambda: self._sent.pop(task.task_id, None))
        node = rank_zero_node(instance)
        if node == self._node_id:
            stream = await self._worker.submit(task, params.options)
        else:
            stream = await self._remote.submit(node, task, params.options)
        if params.keep_alive_s is not None and self._loader is not None:
            self._loader.keep(instance, params.keep_alive_s)
        stream.watch(self._watch(instance, request, params, blocks))
        return await request.attach(stream)

    def _watch(
        self,
        instance: Instance,
        request: OpenRequest,
        params: RequestParams,
        blocks: Blocks,
    ) -> Callable[[Output | PrefillProgress], None]:
        """Measures the answer; at its end the instance has the prompt in its cache."""
        meter = self.meter.watch(params.model, request.opened_at)
        if not blocks:
            return meter
        others = self._placed(params.model)
        self.prefixes.count(instance, self.prefixes.known_chars(others, blocks))

        def watch(item: Output | PrefillProgress) -> None:
            meter(item)
            if isinstance(item, Output) and item.usage is not None:
                self.prefixes.remember(instance, blocks)

        return watch

    def check_waiting_limit(self) -> None:
        """Raises RequestError when too many requests wait for a model to become ready."""
        if self.waiting >= self._limits.max_waiting:
            message = f"{self.waiting} requests wait already for models to become ready"
            raise RequestError("busy", message, retry_after_s=5)

    async def submit_when_ready(
        self, request: OpenRequest, params: RequestParams
    ) -> TaskStream | None:
        """Like `submit`, waiting for an instance; None only when cancelled meanwhile."""
        self.check_waiting_limit()
        self.waiting += 1
        try:
            async with asyncio.timeout(self._limits.ready_s):
                return await self._wait_until_ready(request, params)
        except TimeoutError:
            raise self._too_late(params.model) from None
        finally:
            self.waiting -= 1

    async def wait_until_ready(self, model: str) -> None:
        """Wait until a request could be submitted, without one. Raises RequestError."""
        request, since = OpenRequest(), None
        self.check_waiting_limit()
        self.waiting += 1
        try:
            async with asyncio.timeout(self._limits.ready_s):
                while True:
                    change = self._journal.next_change
                    if best_first(self._state(), self.instances_of(model)):
                        return
                    since = self._given_up(request, model, since)
                    await _wait_for_change(change)
        except TimeoutError:
            raise self._too_late(model) from None
        finally:
            self.waiting -= 1

    async def _wait_until_ready(
        self, request: OpenRequest, params: RequestParams
    ) -> TaskStream | None:
        obstacle: Obstacle | None = None
        while not request.cancelled:
            change = self._journal.next_change
            try:
                async with asyncio.timeout(_left_s(obstacle)):
                    stream = await self.submit(request, params)
            except TimeoutError:
                stream = None
            if stream is not None:
                return stream
            obstacle = self._given_up(request, params.model, obstacle)
            await _wait_for_change(change)
        return None

    def _too_late(self, model: str) -> RequestError:
        message = f"{model} did not become ready in {self._limits.ready_s:g} s"
        return RequestError("not_ready", message, retry_after_s=30)

    def _given_up(
        self, request: OpenRequest, model: str, before: Obstacle | None
    ) -> Obstacle | None:
        """What is in the way. Raises RequestError when that has lasted too long."""
        obstacle = self._obstacle(request, model, before)
        if obstacle is not None and time.monotonic() >= obstacle.until:
            message = f"{model} {obstacle.reason}"
            raise RequestError("not_ready", message, retry_after_s=5, kind=obstacle.kind)
        return obstacle

    def _obstacle(
        self, request: OpenRequest, model: str, before: Obstacle | None
    ) -> Obstacle | None:
        """Why waiting may be in vain; timed from when it was first seen."""
        since = time.monotonic() if before is None else before.since
        state, instances = self._state(), self._placed(model)
        if not instances:
            return None
        if (lost := self._lost_nodes(state, instances)) is not None:
            request.unreachable = lost
        elif (failure := failure_of(state, instances)) is not None:
            return Obstacle(f"has failed: {failure}", since, since + self._limits.failed_s)
        elif (stall := self._stall(state, instances)) is not None:
            # The store had its time already; nothing goes on until it answers.
            return Obstacle(f"{stall}; ask again", since, since, StoreUnreachableError.kind)
        if request.unreachable is None:
            return None
        # Also while it is being loaded elsewhere: the client should not wait for two loads.
        until = max(since + self._limits.lost_s, request.opened_at + self._limits.answer_s)
        return Obstacle(f"{request.unreachable}; ask again", since, until)

    def _lost_nodes(self, state: State, instances: Sequence[Instance]) -> str | None:
        """Which nodes every instance lacks, as text; None when one has all of its nodes."""
        present = {self._node_id, *(peer.node_id for peer in self._peers.others())}
        missing: dict[NodeId, None] = {}
        for instance in instances:
            nodes = instance.shard_assignments.node_to_runner
            lost = [node for node in nodes if node not in present]
            if instance.instance_id in state.instances and not lost:
                return None
            missing.update(dict.fromkeys(lost))
        names = " and ".join(self._deps.node_name(node) for node in missing) or "its node"
        return f"lost {names} and is not ready elsewhere yet"

    def _stall(self, state: State, instances: Sequence[Instance]) -> str | None:
        """Why no instance that has not failed gets its files; None when one does."""
        waiting = [one for one in instances if failure_of(state, [one]) is None]
        reasons = [self._stalled_files(instance) for instance in waiting]
        return reasons[0] if reasons and None not in reasons else None

    def _stalled_files(self, instance: Instance) -> str | None:
        card = card_of(instance)
        files = {card.model_id, *(companion.model_id for companion in companions_of(card))}
        for node in instance.shard_assignments.node_to_runner:
            for model_id, why in self._deps.stalled(node).items():
                if model_id in files:
                    return f"waits for its files on {self._deps.node_name(node)}: {why}"
        return None

    def _task(self, instance: Instance, request: OpenRequest, params: RequestParams) -> ServedTask:
        facts: dict[str, Any] = {
            "task_id": TaskId(str(uuid4())),
            "instance_id": instance.instance_id,
            "command_id": request.command_id,
            "owner_node": self._node_id,
            "trace_enabled": self._state().tracing_enabled,
        }
        if isinstance(params, EmbeddingParams):
            return TextEmbedding(task_params=params.task, **facts)
        return TextGeneration(task_params=params.task, **facts)


def _left_s(obstacle: Obstacle | None) -> float | None:
    return None if obstacle is None else max(0.0, obstacle.until - time.monotonic())


async def _wait_for_change(change: asyncio.Event) -> None:
    # The time limit is for the grace after a failure and for a cancellation.
    try:
        async with asyncio.timeout(_POLL_S):
            await change.wait()
    except TimeoutError:
        return

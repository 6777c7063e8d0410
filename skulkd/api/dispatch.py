"""Finding a runner for a request: the ready instance with least to do, or waiting for one.

Any node's runners count. Knows the state, the worker and the relay to other nodes' workers, no
HTTP but the refusals it raises.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from skulkd.api.commands import Command
from skulkd.api.errors import ApiError
from skulkd.api.journal import Journal
from skulkd.api.request_meter import RequestMeter
from skulkd.api.task_relay import NotTaken, RemoteTasks
from skulkd.api.wanted import Wanted
from skulkd.api.worker_seam import Worker
from skulkd.peers import Peers
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import InstanceId, ModelId, NodeId, TaskId
from skulkd.wire.instances import Instance
from skulkd.wire.runners import RunnerFailed, RunnerReady, RunnerRunning
from skulkd.wire.state import State
from skulkd.wire.tasks import TextGeneration
from skulkd.worker.refusals import NoSuchInstance, NotReady, QueueFull, RequestTooLarge
from skulkd.worker.task_stream import TaskStream

RETRY_AFTER = "Retry-After"
_LOOK_AGAIN_S = 0.2
_NONE_SENT: Mapping[TaskId, InstanceId] = {}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long requests wait for a model that is not ready, and how many of them."""

    ready_s: float = 600.0
    failed_s: float = 3.0
    """A runner that is started again after a failure is so within seconds."""
    waiting_limit: int = 32
    lost_s: float = 5.0
    """A model that lost its node is placed anew within seconds, or fits nowhere."""
    answer_s: float = 9.0
    """A request that finds its model without its node waits at least so long in all."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the cluster knows and the state does not say."""

    homeless: Callable[[], Sequence[Instance]] = tuple
    """Instances that lost a node, or were switched off, and wait for a place."""
    settled: Callable[[], bool] = lambda: True
    """Whether the state is that of a cluster; a node that has just started has to find it."""
    name: Callable[[NodeId], str] = str
    """The name of a node, also of one that was lost."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why waiting may be in vain, and when to stop. `since` and `until` are monotonic seconds."""

    why: str
    since: float
    until: float


class Dispatcher:
    """Hands requests to the worker of this node or of another."""

    def __init__(
        self,
        peers: Peers,
        state: Callable[[], State],
        journal: Journal,
        worker: Worker,
        patience: Patience | None = None,
        outlook: Outlook | None = None,
    ) -> None:
        self._peers = peers
        self._node_id = peers.node_id
        self._outlook = outlook or Outlook()
        self._state = state
        self._journal = journal
        self._worker = worker
        self._remote = RemoteTasks(peers)
        self._sent: dict[TaskId, InstanceId] = {}
        self._patience = patience or Patience()
        self._draining: Callable[[], Container[NodeId]] = frozenset
        self.waiting = 0
        """Requests that wait for a model to become ready."""
        self.meter = RequestMeter()

    def avoid(self, draining: Callable[[], Container[NodeId]]) -> None:
        """Give nothing to these nodes while another instance can take it."""
        self._draining = draining

    def homeless(self) -> Sequence[Instance]:
        """What lost its node, or was switched off, and waits for a place."""
        return self._outlook.homeless()

    def readiness(self) -> list[tuple[ModelId, bool]]:
        """The model of every instance, and whether it serves; one without a node does not."""
        state = self._state()
        placed = [
            (one.shard_assignments.model_id, _serves(state, one))
            for one in state.instances.values()
        ]
        waiting = [one for one in self.homeless() if one.instance_id not in state.instances]
        return placed + [(one.shard_assignments.model_id, False) for one in waiting]

    def instances_of(self, model: str) -> list[Instance]:
        """Raises ApiError 404 when the model is not placed, and not about to be; 503 before
        this node can know."""
        placed = self._state().instances.values()
        instances = _instances_of([*placed, *self._outlook.homeless()], model)
        if not instances and not self._outlook.settled():
            message = "this node has no master and does not know what is placed; ask again"
            raise ApiError(503, message, headers={RETRY_AFTER: "1"})
        if not instances:
            raise ApiError(404, f"No instance found for model {model[:200]}")
        return instances

    async def submit(self, command: Command, wanted: Wanted) -> TaskStream | None:
        """Give the request to a ready instance; None when none is ready yet.

        Raises ApiError: 404 the model is not placed, 413, 429 too many wait already.
        """
        instances = self.instances_of(wanted.params.model)
        full: QueueFull | None = None
        ready = least_busy_first(self._state(), instances, self._sent)
        for instance in off_draining(ready, self._draining()):
            try:
                return await self._offer(command, wanted, instance)
            except QueueFull as refusal:
                full = full or refusal
            except NotTaken as refusal:
                command.silent = str(refusal) if refusal.silent else command.silent
            except (NotReady, NoSuchInstance) as refusal:
                # The state will say so in a moment.
                _log.debug("instance %s: %s", instance.instance_id, refusal)
            except RequestTooLarge as refusal:
                raise ApiError(413, str(refusal)) from refusal
        if full is not None:
            raise _too_many(str(full), full.retry_after_s) from full
        return None

    async def _offer(self, command: Command, wanted: Wanted, instance: Instance) -> TaskStream:
        task = self._task(command, wanted, instance)
        # Counted at once: the state learns of it when the runner's node has told everybody.
        self._sent[task.task_id] = instance.instance_id
        command.on_close(lambda: self._sent.pop(task.task_id, None))
        node = first_rank_node(instance)
        if node == self._node_id:
            stream = await self._worker.submit(task, wanted.options)
        else:
            stream = await self._remote.submit(node, task, wanted.options)
        stream.watch(self.meter.watch(wanted.params.model, command.opened_at))
        return await command.attach(stream)

    def check_waiting_room(self) -> None:
        """Raises ApiError 429 when too many wait for a model to become ready."""
        if self.waiting >= self._patience.waiting_limit:
            raise _too_many(f"{self.waiting} requests wait already for models to become ready", 5)

    async def submit_when_ready(self, command: Command, wanted: Wanted) -> TaskStream | None:
        """The same, waiting; None only when the command was cancelled meanwhile.

        Raises ApiError also with 503, when no instance becomes ready.
        """
        self.check_waiting_room()
        self.waiting += 1
        try:
            async with asyncio.timeout(self._patience.ready_s):
                return await self._wait(command, wanted)
        except TimeoutError:
            message = f"{wanted.params.model} did not become ready in {self._patience.ready_s:g} s"
            raise ApiError(503, message, headers={RETRY_AFTER: "30"}) from None
        finally:
            self.waiting -= 1

    async def _wait(self, command: Command, wanted: Wanted) -> TaskStream | None:
        trouble: Trouble | None = None
        while not command.cancelled:
            change = self._journal.next_change
            try:
                async with asyncio.timeout(_left_s(trouble)):
                    stream = await self.submit(command, wanted)
            except TimeoutError:
                stream = None
            if stream is not None:
                return stream
            trouble = self._trouble(command, wanted.params.model, trouble)
            if trouble is not None and time.monotonic() >= trouble.until:
                message = f"{wanted.params.model} {trouble.why}"
                raise ApiError(503, message, headers={RETRY_AFTER: "5"})
            await _wait(change)
        return None

    def _trouble(self, command: Command, model: str, before: Trouble | None) -> Trouble | None:
        """Why waiting may be in vain; it counts from when it was first seen."""
        since = time.monotonic() if before is None else before.since
        state, instances = self._state(), self.instances_of(model)
        if (lost := self._lost_nodes(state, instances)) is not None:
            command.silent = lost
        elif (failure := failure_of(state, instances)) is not None:
            return Trouble(f"has failed: {failure}", since, since + self._patience.failed_s)
        if command.silent is None:
            return None
        # Also while it is being loaded elsewhere: the client shall not wait for two loads.
        until = max(since + self._patience.lost_s, command.opened_at + self._patience.answer_s)
        return Trouble(f"{command.silent}; ask again", since, until)

    def _lost_nodes(self, state: State, instances: Sequence[Instance]) -> str | None:
        """Which nodes every instance lacks, in words; None when one is whole."""
        here = {self._node_id, *(peer.node_id for peer in self._peers.others())}
        missing: dict[NodeId, None] = {}
        for instance in instances:
            nodes = instance.shard_assignments.node_to_runner
            gone = [node for node in nodes if node not in here]
            if instance.instance_id in state.instances and not gone:
                return None
            missing.update(dict.fromkeys(gone))
        names = " and ".join(self._outlook.name(node) for node in missing) or "its node"
        return f"lost {names} and is not ready elsewhere yet"

    def _task(self, command: Command, wanted: Wanted, instance: Instance) -> TextGeneration:
        return TextGeneration(
            task_id=TaskId(str(uuid4())),
            instance_id=instance.instance_id,
            command_id=command.command_id,
            owner_node=self._node_id,
            task_params=wanted.params,
            trace_enabled=self._state().tracing_enabled,
        )


def card_of(instance: Instance) -> ModelCard:
    """Every shard of an instance carries the same card."""
    return next(iter(instance.shard_assignments.runner_to_shard.values())).model_card


def first_rank_node(instance: Instance) -> NodeId:
    """The node of rank 0, which answers for the instance."""
    shards = instance.shard_assignments
    return next(
        node
        for node, runner_id in shards.node_to_runner.items()
        if shards.runner_to_shard[runner_id].device_rank == 0
    )


def least_busy_first(
    state: State, instances: Iterable[Instance], sent: Mapping[TaskId, InstanceId] = _NONE_SENT
) -> list[Instance]:
    """Those whose runners all serve, the one with fewest requests first.

    `sent` are requests of this node, which the state may not know yet.
    """
    requests = {
        task_id: task.instance_id
        for task_id, task in state.tasks.items()
        if isinstance(task, TextGeneration)
    }
    busy = Counter({**requests, **sent}.values())
    ready = [instance for instance in instances if _serves(state, instance)]
    return sorted(ready, key=lambda instance: busy[instance.instance_id])


def off_draining(ready: Sequence[Instance], draining: Container[NodeId]) -> list[Instance]:
    """Those without a draining node; all when there is no such."""
    free = [
        instance
        for instance in ready
        if not any(node in draining for node in instance.shard_assignments.node_to_runner)
    ]
    return free or list(ready)


def failure_of(state: State, instances: Sequence[Instance]) -> str | None:
    """Why none of them will become ready by itself; None while one still may."""
    reasons = [_failure(state, instance) for instance in instances]
    return reasons[0] if reasons and None not in reasons else None


def _left_s(trouble: Trouble | None) -> float | None:
    return None if trouble is None else max(0.0, trouble.until - time.monotonic())


async def _wait(change: asyncio.Event) -> None:
    # Looking again without a change is for the grace after a failure and for a cancellation.
    try:
        async with asyncio.timeout(_LOOK_AGAIN_S):
            await change.wait()
    except TimeoutError:
        return


def _instances_of(instances: Iterable[Instance], model: str) -> list[Instance]:
    return [one for one in instances if one.shard_assignments.model_id == model]


def _serves(state: State, instance: Instance) -> bool:
    return all(
        isinstance(state.runners.get(runner_id), RunnerReady | RunnerRunning)
        for runner_id in instance.shard_assignments.runner_to_shard
    )


def _failure(state: State, instance: Instance) -> str | None:
    for runner_id in instance.shard_assignments.runner_to_shard:
        status = state.runners.get(runner_id)
        if isinstance(status, RunnerFailed):
            return status.error_message or "the runner gave no reason"
    return None


def _too_many(message: str, retry_after_s: int) -> ApiError:
    return ApiError(429, message, headers={RETRY_AFTER: str(retry_after_s)})

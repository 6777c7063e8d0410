"""The load of this node, from the tasks of the instances that it leads.

Every request ends up as a task of an instance's first rank, whichever node's API or gateway it
came through, so those tasks are the work of that rank's node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from skulkd.swarm.catalog import serves
from skulkd.swarm.telemetry import FAILURES_REPORTED, Counters, ExecutionClass
from skulkd.wire.ids import InstanceId, NodeId, TaskId
from skulkd.wire.instances import Instance
from skulkd.wire.load import ClassLoad, ClassLoads, LoadTotal, NodeLoad, OpenWork, RecentFailure
from skulkd.wire.state import State
from skulkd.wire.tasks import BaseRequestTask, TextGeneration

_OPEN = frozenset({"Pending", "Running"})
_FAILED = frozenset({"Failed", "TimedOut"})


@dataclass(frozen=True, slots=True)
class Slots:
    """How much may run at once: per instance by its runner's setting, generic by the owner's."""

    per_instance: int
    generic: int = 0


def leader(instance: Instance) -> NodeId | None:
    """The node of the first rank."""
    shards = instance.shard_assignments
    for node, runner in shards.node_to_runner.items():
        if shards.runner_to_shard[runner].device_rank == 0:
            return node
    return None


def led_by(state: State, node_id: NodeId) -> dict[InstanceId, Instance]:
    return {key: value for key, value in state.instances.items() if leader(value) == node_id}


def hosted_by(state: State, node_id: NodeId) -> set[InstanceId]:
    """Those that need this node, whichever rank it has."""
    return {
        key
        for key, instance in state.instances.items()
        if node_id in instance.shard_assignments.node_to_runner
    }


def open_requests(state: State, instances: Iterable[InstanceId]) -> list[BaseRequestTask]:
    wanted = set(instances)
    return [
        task
        for task in state.tasks.values()
        if isinstance(task, BaseRequestTask)
        and task.instance_id in wanted
        and task.task_status in _OPEN
    ]


def class_of(task: BaseRequestTask) -> ExecutionClass:
    return "agentic" if isinstance(task, TextGeneration) and task.task_params.tools else "chat"


class LoadMeter:
    """Follows the tasks of this node, for latencies and failures. `clock` never runs back."""

    def __init__(
        self,
        node_id: NodeId,
        state: Callable[[], State],
        counters: Counters,
        clock: Callable[[], float],
    ) -> None:
        self._node_id = node_id
        self._state = state
        self._counters = counters
        self._clock = clock
        self._since: dict[TaskId, tuple[float, ExecutionClass]] = {}
        self._tasks: object = None
        self._instances: object = None

    def notify(self) -> None:
        """The state has changed; cheap when the tasks have not."""
        state = self._state()
        if state.tasks is self._tasks and state.instances is self._instances:
            return
        self._tasks, self._instances = state.tasks, state.instances
        current = {task.task_id: task for task in self._open(state)}
        now = self._clock()
        for task_id, task in current.items():
            if task_id not in self._since:
                self._since[task_id] = (now, class_of(task))
        for task_id in [known for known in self._since if known not in current]:
            began, kind = self._since.pop(task_id)
            self._finish(state, task_id, kind, (now - began) * 1000)

    def _open(self, state: State) -> list[BaseRequestTask]:
        return open_requests(state, led_by(state, self._node_id))

    def _finish(self, state: State, task_id: TaskId, kind: ExecutionClass, took_ms: float) -> None:
        task = state.tasks.get(task_id)
        failed = task is not None and task.task_status in _FAILED
        code = None
        if isinstance(task, BaseRequestTask) and failed:
            code = task.error_type or ("timeout" if task.task_status == "TimedOut" else None)
        self._counters.finish(kind, took_ms, ok=not failed, code=code)

    def work(self) -> list[OpenWork]:
        """What this node is needed for until it ends, as first rank or another; oldest first."""
        state, now = self._state(), self._clock()
        found = []
        for task in open_requests(state, hosted_by(state, self._node_id)):
            began, _ = self._since.get(task.task_id, (None, None))
            found.append(
                OpenWork(
                    kind="request",
                    id=task.task_id,
                    model=task.task_params.model,
                    status=task.task_status,
                    seconds=None if began is None else round(now - began, 3),
                )
            )
        return sorted(found, key=lambda work: -(work.seconds or 0.0))


@dataclass(frozen=True, slots=True)
class LoadFacts:
    """What a node's load contains besides its tasks."""

    name: str
    draining_since: str | None
    fingerprint: str
    work: Sequence[OpenWork] = ()
    hardware: Mapping[str, object] | None = None


def node_load(
    state: State, node_id: NodeId, slots: Slots, counters: Counters, facts: LoadFacts
) -> NodeLoad:
    """The load of one node. Counters give what the state does not keep."""
    led = led_by(state, node_id)
    ready = sum(serves(state, instance) for instance in led.values())
    llm_slots = slots.per_instance * ready
    draining = facts.draining_since is not None
    active = {"chat": 0, "agentic": 0}
    queued = {"chat": 0, "agentic": 0}
    running: dict[InstanceId, int] = {}
    for task in open_requests(state, led):
        at_work = running.get(task.instance_id, 0)
        running[task.instance_id] = at_work + 1
        bucket = active if at_work < slots.per_instance else queued
        bucket[class_of(task)] += 1
    used = sum(active.values()) + sum(queued.values())
    llm_free = 0 if draining else max(0, llm_slots - used)
    generic_active, generic_queued = counters.active_generic, int(counters.queued_generic)
    generic_free = 0 if draining else max(0, slots.generic - generic_active - generic_queued)
    failures = list(counters.failures)[:FAILURES_REPORTED]
    return NodeLoad(
        node_id=node_id,
        name=facts.name,
        draining=draining,
        draining_since=facts.draining_since,
        max_concurrency=llm_slots + slots.generic,
        active_jobs=sum(active.values()) + generic_active,
        queued_jobs=sum(queued.values()) + generic_queued,
        free_slots=llm_free + generic_free,
        classes=ClassLoads(
            chat=_class(llm_slots, active["chat"], queued["chat"], llm_free),
            agentic=_class(llm_slots, active["agentic"], queued["agentic"], llm_free),
            generic_job=_class(slots.generic, generic_active, generic_queued, generic_free),
        ),
        avg_latency_ms=counters.average_ms(),
        recent_failure_count=len(failures),
        recent_failures=[RecentFailure.model_validate(failure) for failure in failures],
        catalog_fingerprint=facts.fingerprint,
        hardware_pressure=None if facts.hardware is None else dict(facts.hardware),
        work=list(facts.work),
    )


def _class(slots: int, active: int, queued: int, free: int) -> ClassLoad:
    return ClassLoad(max_concurrency=slots, active_jobs=active, queued_jobs=queued, free_slots=free)


def total_load(loads: Sequence[NodeLoad]) -> LoadTotal:
    """All nodes that answered, together."""

    def classes(name: str) -> ClassLoad:
        parts: list[ClassLoad] = [getattr(load.classes, name) for load in loads]
        return ClassLoad(
            max_concurrency=sum(part.max_concurrency for part in parts),
            active_jobs=sum(part.active_jobs for part in parts),
            queued_jobs=sum(part.queued_jobs for part in parts),
            free_slots=sum(part.free_slots for part in parts),
        )

    return LoadTotal(
        nodes=len(loads),
        draining_nodes=sum(load.draining for load in loads),
        max_concurrency=sum(load.max_concurrency for load in loads),
        active_jobs=sum(load.active_jobs for load in loads),
        queued_jobs=sum(load.queued_jobs for load in loads),
        free_slots=sum(load.free_slots for load in loads),
        classes=ClassLoads(
            chat=classes("chat"), agentic=classes("agentic"), generic_job=classes("generic_job")
        ),
    )

"""Which instances can serve a request, and which of them first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import InstanceId, NodeId, TaskId
from skulkd.wire.instances import Instance
from skulkd.wire.runners import RunnerFailed, RunnerReady, RunnerRunning
from skulkd.wire.state import State
from skulkd.wire.tasks import BaseRequestTask

REQUEST_CHARS = 2048
"""So much of a prompt that need not be read again outweighs one more request to share with."""
_NONE_SENT: Mapping[TaskId, InstanceId] = {}
_NOTHING_KNOWN: Mapping[InstanceId, int] = {}


def card_of(instance: Instance) -> ModelCard:
    """Every shard of an instance carries the same card."""
    return next(iter(instance.shard_assignments.runner_to_shard.values())).model_card


def is_ready(state: State, instance: Instance) -> bool:
    """Whether all runners of the instance serve."""
    return all(
        isinstance(state.runners.get(runner_id), RunnerReady | RunnerRunning)
        for runner_id in instance.shard_assignments.runner_to_shard
    )


def best_first(
    state: State,
    instances: Iterable[Instance],
    sent: Mapping[TaskId, InstanceId] = _NONE_SENT,
    known_chars: Mapping[InstanceId, int] = _NOTHING_KNOWN,
) -> list[Instance]:
    """Ready instances: the one with the fewest requests first, unless another has read more.

    `sent` are requests of this node, which the state may not know yet; `known_chars` is how much
    of the prompt's beginning an instance has in its cache.
    """
    requests = {
        task_id: task.instance_id
        for task_id, task in state.tasks.items()
        if isinstance(task, BaseRequestTask)
    }
    busy = Counter({**requests, **sent}.values())
    ready = [instance for instance in instances if is_ready(state, instance)]

    def cost(instance: Instance) -> tuple[float, int]:
        requests = busy[instance.instance_id]
        saved = known_chars.get(instance.instance_id, 0) / REQUEST_CHARS
        return requests - saved, requests

    return sorted(ready, key=cost)


def without_draining(ready: Sequence[Instance], draining: Container[NodeId]) -> list[Instance]:
    """Instances without a draining node; all of them when there is no such instance."""
    free = [
        instance
        for instance in ready
        if not any(node in draining for node in instance.shard_assignments.node_to_runner)
    ]
    return free or list(ready)


def failure_of(state: State, instances: Sequence[Instance]) -> str | None:
    """Why none of them will become ready without help; None while one still may."""
    reasons = [_failure(state, instance) for instance in instances]
    return reasons[0] if reasons and None not in reasons else None


def _failure(state: State, instance: Instance) -> str | None:
    for runner_id in instance.shard_assignments.runner_to_shard:
        status = state.runners.get(runner_id)
        if isinstance(status, RunnerFailed):
            return status.error_message or "the runner gave no reason"
    return None

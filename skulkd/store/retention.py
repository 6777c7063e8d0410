"""Which staged copies stay: those in use, and the most recently used up to a budget. Pure.

A model is in use while an instance names it, a runner still holds it, or its files are being
transferred; its companions are then in use, too.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from skulkd.store.model_ids import unchecked_directory_name
from skulkd.store.staging.area import StagedModel
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.state import State

CompanionKind = Literal["vision weights", "MTP sidecar", "assistant drafter"]
ModelsInUse = Mapping[str, tuple[str, ...]]
"""Directory name of a model to the reasons why it must stay."""

SHORT_ID = 8


@dataclass(frozen=True, slots=True)
class Companion:
    """Another repository that a model needs, or runs better with."""

    model_id: ModelId
    kind: CompanionKind
    required: bool


def companions_of(card: ModelCard) -> tuple[Companion, ...]:
    """Each companion once, never the model itself."""
    found: dict[ModelId, Companion] = {}
    for other in _named_in(card):
        if other.model_id != card.model_id:
            found.setdefault(other.model_id, other)
    return tuple(found.values())


def _named_in(card: ModelCard) -> Iterator[Companion]:
    if card.vision is not None and card.vision.weights_repo:
        yield Companion(ModelId(card.vision.weights_repo), "vision weights", required=True)
    runtime = card.runtime
    if runtime is not None and runtime.mtp_sidecar_repo:
        yield Companion(ModelId(runtime.mtp_sidecar_repo), "MTP sidecar", required=False)
    if runtime is not None and runtime.assistant_model_repo:
        yield Companion(ModelId(runtime.assistant_model_repo), "assistant drafter", required=False)


def models_in_use(
    state: State,
    node_id: NodeId,
    running: Iterable[ModelCard] = (),
    staging: Iterable[ModelCard] = (),
) -> ModelsInUse:
    """What must stay on this node.

    `running` are models of live runners, which outlive their instance by a few seconds; `staging`
    are models being transferred, before the state shows it.
    """
    reasons: dict[str, list[str]] = {}
    for card, why in _reasons(state, node_id, running, staging):
        _add(reasons, card.model_id, why)
        for companion in companions_of(card):
            _add(reasons, companion.model_id, f"{companion.kind} of {card.model_id} ({why})")
    return {name: tuple(found) for name, found in reasons.items()}


def _reasons(
    state: State, node_id: NodeId, running: Iterable[ModelCard], staging: Iterable[ModelCard]
) -> Iterator[tuple[ModelCard, str]]:
    for instance in state.instances.values():
        assignments = instance.shard_assignments
        runner_id = assignments.node_to_runner.get(node_id)
        if runner_id is not None:
            shard = assignments.runner_to_shard[runner_id]
            yield shard.model_card, f"instance {instance.instance_id[:SHORT_ID]}"
    for card in running:
        yield card, "a runner"
    for card in staging:
        yield card, "being staged"


def _add(reasons: dict[str, list[str]], model_id: str, why: str) -> None:
    known = reasons.setdefault(unchecked_directory_name(model_id), [])
    if why not in known:
        known.append(why)


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """Every copy is in one of the three, the last used first."""

    evict: tuple[StagedModel, ...] = ()
    keep: tuple[StagedModel, ...] = ()
    in_use: tuple[StagedModel, ...] = ()

    @property
    def evicted_bytes(self) -> int:
        return sum(copy.size_bytes for copy in self.evict)


def plan_eviction(
    copies: Iterable[StagedModel], in_use: Collection[str], budget_bytes: int | None
) -> EvictionPlan:
    """What is evicted and what stays. A budget of None keeps everything.

    `in_use` are directory names; copies in use do not count against the budget. The copy that
    crosses the budget stays, so eviction never leaves less than the budget of unused copies,
    unless there were less before. Only a budget of zero keeps nothing.
    """
    ordered = sorted(copies, key=lambda copy: (-copy.last_used, copy.name))
    used = tuple(copy for copy in ordered if copy.name in in_use)
    evict: list[StagedModel] = []
    keep: list[StagedModel] = []
    kept_bytes = 0
    for copy in ordered:
        if copy.name in in_use:
            continue
        if budget_bytes is None or kept_bytes < budget_bytes:
            keep.append(copy)
            kept_bytes += copy.size_bytes
        else:
            evict.append(copy)
    return EvictionPlan(tuple(evict), tuple(keep), used)

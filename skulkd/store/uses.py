"""Which models of a node are in use, and by what. Pure.

A model is in use from the moment an instance names it, a runner still holds it, or its files are
on their way; so are its companions, without which a live runner would lose weights.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.state import State

CompanionKind = Literal["vision weights", "MTP sidecar", "assistant drafter"]
Uses = Mapping[str, tuple[str, ...]]
"""Name of a model's directory to the reasons why it must stay."""

SHORT_ID = 8


@dataclass(frozen=True, slots=True)
class Companion:
    """Another repository that a model needs, or runs better with."""

    model_id: ModelId
    kind: CompanionKind
    required: bool


def companions_of(card: ModelCard) -> tuple[Companion, ...]:
    """What must come along with a model; each once, never the model itself."""
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
    moving: Iterable[ModelCard] = (),
) -> Uses:
    """What must stay on this node. `running` are models of live runners, `moving` those on the way.

    A runner outlives its instance by a few seconds, and files are on the way before the state
    says so: both are known here first.
    """
    reasons: dict[str, list[str]] = {}
    for card, why in _reasons(state, node_id, running, moving):
        _note(reasons, card.model_id, why)
        for companion in companions_of(card):
            _note(reasons, companion.model_id, f"{companion.kind} of {card.model_id} ({why})")
    return {name: tuple(found) for name, found in reasons.items()}


def name_of(model_id: str) -> str:
    """The directory name of any id, also of one that we would not accept as new."""
    return model_id.replace("/", "--")


def _reasons(
    state: State, node_id: NodeId, running: Iterable[ModelCard], moving: Iterable[ModelCard]
) -> Iterator[tuple[ModelCard, str]]:
    for instance in state.instances.values():
        assignments = instance.shard_assignments
        runner_id = assignments.node_to_runner.get(node_id)
        if runner_id is not None:
            shard = assignments.runner_to_shard[runner_id]
            yield shard.model_card, f"instance {instance.instance_id[:SHORT_ID]}"
    for card in running:
        yield card, "a runner"
    for card in moving:
        yield card, "being staged"


def _note(reasons: dict[str, list[str]], model_id: str, why: str) -> None:
    known = reasons.setdefault(name_of(model_id), [])
    if why not in known:
        known.append(why)

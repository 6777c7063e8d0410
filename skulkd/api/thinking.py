"""Whether and how hard a model should think: the client's wishes against the model's abilities.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from skulkd.wire.cards import ReasoningEffort
from skulkd.wire.catalogue import ResolvedModelCapabilities


@dataclass(frozen=True, slots=True)
class Thinking:
    """None leaves it to the model's chat template."""

    effort: ReasoningEffort | None = None
    enabled: bool | None = None


def resolve_thinking(
    model: ResolvedModelCapabilities, effort: ReasoningEffort | None, enabled: bool | None
) -> Thinking:
    """What reaches the template; wishes that the model cannot meet are dropped."""
    if not model.supports_thinking:
        return Thinking()
    if not model.supports_thinking_toggle:
        return Thinking(effort=None if effort == "none" else effort)
    if effort == "none" or enabled is False:
        return Thinking(enabled=False)
    if enabled is True:
        return Thinking(effort=effort or model.default_reasoning_effort, enabled=True)
    if effort is None:
        return Thinking()
    on = effort != model.disabled_reasoning_effort
    return Thinking(effort=effort if on else None, enabled=on)

"""The catalogue of models that a node offers: entries, exposure, fingerprint. Pure.

The fingerprint is compared byte for byte with one made by the reference, so the projection,
its key order and the sort order (ICU's, not code points) are fixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skulkd.swarm.script_values import (
    compact_json,
    first_text,
    is_number,
    optional_text,
    sha256_hex,
    trim,
)

METADATA_VERSION = 1

# Printable ASCII in ICU's order; letters stand in pairs that differ only in the last resort.
_ORDER = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789" + "abcdefghijklmnopqrstuvwxyz"
_WEIGHT = {character: weight for weight, character in enumerate(_ORDER)}
# Tab to carriage return sort below space; other control characters are ignored.
_BELOW_SPACE = {character: weight - 5 for weight, character in enumerate("\t\n\v\f\r")}
_HEALTH = {
    "healthy": "healthy",
    "degraded": "degraded",
    "blocked": "blocked",
    "unreachable": "unreachable",
    "unhealthy": "unreachable",
    "offline": "unreachable",
}
_LOCAL_ADAPTERS = frozenset(
    {"openai-compatible-local", "vllm-local", "llama-cpp-local", "llamacpp-local"}
)

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Exposure:
    """What the owner lets the gateway see."""

    expose_all: bool = True
    allow: Sequence[str] = ()
    block: Sequence[str] = ()


def normalize_health(value: object) -> str:
    return _HEALTH.get(trim(value).lower(), "unknown") if isinstance(value, str) else "unknown"


def normalize_capabilities(value: object) -> list[str]:
    """Texts, trimmed, each once, in the order given."""
    entries = value if isinstance(value, list | tuple) else ()
    return list(dict.fromkeys(text for entry in entries if (text := optional_text(entry))))


def collation_key(text: str) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Sorts as the reference does: by letter whatever its case, then lower before upper."""
    weights: list[int] = []
    cases: list[bool] = []
    for character in text:
        weight = _primary(character)
        if weight is not None:
            weights.append(weight)
            cases.append(character.isupper())
    return tuple(weights), tuple(cases)


def _primary(character: str) -> int | None:
    if character in _BELOW_SPACE:
        return _BELOW_SPACE[character]
    if (weight := _WEIGHT.get(character.lower())) is not None:
        return weight
    # Beyond ASCII the reference follows its host's locale; code points are at least stable.
    return None if character < " " or character == "\x7f" else len(_ORDER) + ord(character)


def catalog_projection(models: Iterable[Mapping[str, Any]]) -> str:
    """The canonical JSON of a catalogue."""
    rows = [_projected(model) for model in models]
    rows.sort(key=lambda row: collation_key(f"{row['provider'] or ''}:{row['name']}"))
    return compact_json(rows)


def catalog_fingerprint(models: Iterable[Mapping[str, Any]]) -> str:
    return f"sha256:{sha256_hex(catalog_projection(models))}"


def _projected(model: Mapping[str, Any]) -> Entry:
    capabilities = normalize_capabilities(model.get("capabilities"))
    return {
        "name": optional_text(model.get("name")) or "",
        "provider": optional_text(model.get("provider")),
        "adapter": optional_text(model.get("adapter")),
        "source_agent_slug": optional_text(model.get("source_agent_slug")),
        "model_id": first_text(model.get("model_id"), model.get("model")),
        "exposed": model.get("exposed") is not False,
        # UTF-16 code units: an emoji sorts below U+FF5E.
        "capabilities": sorted(capabilities, key=lambda text: text.encode("utf-16-be")),
        "health_status": normalize_health(model.get("health_status")),
    }


def is_embedding(name: str, family: str | None = None, best_usage: str | None = None) -> bool:
    names = f"{name} {family or ''}".lower()
    usage = (best_usage or "").lower()
    return "embed" in names or "bert" in names or "embed" in usage or "vector" in usage


def is_vision(name: str, family: str | None = None) -> bool:
    names = f"{name} {family or ''}".lower()
    return any(word in names for word in ("llava", "vision", "bakllava"))


def default_model(agent: Mapping[str, Any]) -> str | None:
    return first_text(agent.get("defaultModel"), agent.get("default_model"), agent.get("model"))


def agent_health(agent: Mapping[str, Any]) -> str:
    health = agent.get("health")
    status = health.get("status") if isinstance(health, Mapping) else None
    return normalize_health(first_text(status, agent.get("health_status")))


def is_exposed(agent: Mapping[str, Any], exposure: Exposure) -> bool:
    """The block list and the kind of model win over the allow list."""
    slug = optional_text(agent.get("slug")) or ""
    names = {name for name in (slug, default_model(agent)) if name}
    usage = first_text(agent.get("bestUsage"), agent.get("best_usage"))
    if agent_health(agent) == "blocked" or names & set(exposure.block):
        return False
    if any(is_embedding(name, best_usage=usage) for name in names):
        return False
    return bool(names & set(exposure.allow)) if exposure.allow else exposure.expose_all


def exposed_slugs(agents: Iterable[Mapping[str, Any]], exposure: Exposure) -> list[str]:
    return [str(agent["slug"]) for agent in agents if is_exposed(agent, exposure)]


def catalog_entry(agent: Mapping[str, Any], exposure: Exposure) -> Entry | None:
    """The agent as the gateway sees it, keys in the reference's order; None without a slug."""
    slug = optional_text(agent.get("slug"))
    if slug is None:
        return None
    model = default_model(agent) or slug
    adapter = optional_text(agent.get("adapter"))
    local = adapter in _LOCAL_ADAPTERS
    capabilities = normalize_capabilities(agent.get("capabilities"))
    return {
        "name": slug,
        "provider": "mcoda",
        "adapter": adapter,
        "source_agent_id": optional_text(agent.get("id")),
        "source_agent_slug": slug,
        "model": model,
        "model_id": model,
        **({"auth_mode": "none"} if local else {}),
        "display_name": slug,
        "context_window": _number(agent, "contextWindow", "context_window"),
        "max_output_tokens": _number(agent, "maxOutputTokens", "max_output_tokens"),
        "supports_tools": agent.get("supportsTools", agent.get("supports_tools")) is True,
        "supports_vision": any(
            word in text.lower() for text in capabilities for word in ("vision", "visual")
        ),
        "openai_compatible": local,
        "exposed": is_exposed(agent, exposure),
        "best_usage": first_text(agent.get("bestUsage"), agent.get("best_usage")) or "general_chat",
        "capabilities": capabilities,
        "cost_per_million": _number(agent, "costPerMillion", "cost_per_million"),
        "rating": _number(agent, "rating"),
        "reasoning_rating": _number(agent, "reasoningRating", "reasoning_rating"),
        "max_complexity": _number(agent, "maxComplexity", "max_complexity"),
        "health_status": agent_health(agent),
        "metadata_quality": "discovered",
    }


def _number(agent: Mapping[str, Any], *names: str) -> float | int | None:
    return next((agent[name] for name in names if is_number(agent.get(name))), None)

"""The models that can serve as agents of a gateway: entries, exposure, health, fingerprint. Pure.

The fingerprint is compared byte for byte with one made by the reference, so the projection,
its key order and the sort order (ICU's, not code points) are fixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skulkd.placement.memory import embeds_only
from skulkd.requests.selection import card_of
from skulkd.store.cards.model_list import resolve_capabilities
from skulkd.store.staging.progress import is_placeholder
from skulkd.swarm.js_values import (
    compact_json,
    first_text,
    normalize_server_name,
    optional_text,
    sha256_hex,
    trim,
)
from skulkd.wire.cards import ModelCard
from skulkd.wire.downloads import DownloadCompleted
from skulkd.wire.instances import Instance
from skulkd.wire.runners import RunnerFailed, RunnerReady, RunnerRunning
from skulkd.wire.state import State

METADATA_VERSION = 1
ADAPTER = "openai-compatible-local"

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

CatalogEntry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Exposure:
    """What the owner lets the gateway see."""

    expose_all: bool = True
    allow: Sequence[str] = ()
    block: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Agent:
    """A model as the gateway addresses it."""

    slug: str
    model: str | None
    health: str
    adapter: str = ADAPTER
    context_window: int | None = None
    supports_tools: bool = False
    capabilities: Sequence[str] = ("chat",)
    api_key: str | None = field(default=None, repr=False)
    """Of a remote model; those of a cluster have none."""

    @property
    def names(self) -> set[str]:
        """By which an owner may allow or block it."""
        return {name for name in (self.slug, self.model) if name}


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


def _projected(model: Mapping[str, Any]) -> CatalogEntry:
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


def is_embedding(name: str) -> bool:
    return "embed" in name.lower() or "bert" in name.lower()


def is_exposed(agent: Agent, exposure: Exposure) -> bool:
    """The block list and the kind of model win over the allow list."""
    if agent.health == "blocked" or agent.names & set(exposure.block):
        return False
    if any(is_embedding(name) for name in agent.names):
        return False
    return bool(agent.names & set(exposure.allow)) if exposure.allow else exposure.expose_all


def catalog_entry(agent: Agent, exposure: Exposure) -> CatalogEntry:
    """The agent as the gateway sees it, keys in the reference's order.

    Those that are always null describe what the reference knows of remote models.
    """
    model = agent.model or agent.slug
    return {
        "name": agent.slug,
        "provider": "mcoda",
        "adapter": agent.adapter,
        "source_agent_id": agent.slug,
        "source_agent_slug": agent.slug,
        "model": model,
        "model_id": model,
        "auth_mode": "none",
        "display_name": agent.slug,
        "context_window": agent.context_window,
        "max_output_tokens": None,
        "supports_tools": agent.supports_tools,
        "supports_vision": any(
            word in text.lower() for text in agent.capabilities for word in ("vision", "visual")
        ),
        "openai_compatible": True,
        "exposed": is_exposed(agent, exposure),
        "best_usage": "general_chat",
        "capabilities": list(agent.capabilities),
        "cost_per_million": None,
        "rating": None,
        "reasoning_rating": None,
        "max_complexity": None,
        "health_status": agent.health,
        "metadata_quality": "discovered",
    }


def cluster_agents(state: State, loadable: Iterable[ModelCard] = ()) -> list[Agent]:
    """One agent per model that is placed or `loadable`, in a stable order.

    A placed model that serves nowhere is not healthy, unless jobs may have it loaded and it has not
    failed: they wait for it. Embedding models generate nothing and are left out.
    """
    cards = {str(card.model_id): card for card in loadable if not embeds_only(card)}
    placed: dict[str, list[Instance]] = {}
    for instance in state.instances.values():
        if embeds_only(card_of(instance)):
            continue
        placed.setdefault(str(instance.shard_assignments.model_id), []).append(instance)
    models = sorted({*placed, *cards})
    slugs = slugs_of(models)
    return [
        _placed_agent(state, slugs[model], placed[model], waits=model in cards)
        if model in placed
        else Agent(slugs[model], model, "healthy", supports_tools=_supports_tools(cards[model]))
        for model in models
    ]


def loadable_cards(state: State) -> list[ModelCard]:
    """Cards of the models whose files some node has."""
    return [
        entry.shard_metadata.model_card
        for entries in state.downloads.values()
        for entry in entries
        if isinstance(entry, DownloadCompleted) and not is_placeholder(entry)
    ]


def _placed_agent(state: State, slug: str, instances: Sequence[Instance], *, waits: bool) -> Agent:
    card, health = card_of(instances[0]), _health(state, instances)
    return Agent(
        slug,
        str(card.model_id),
        "healthy" if waits and health == "degraded" else health,
        context_window=_context(instances),
        supports_tools=_supports_tools(card),
    )


def slugs_of(models: Sequence[str]) -> dict[str, str]:
    """Short names of plain ASCII, which sort the same everywhere; the whole id where two clash."""
    short = {model: normalize_server_name(model.rsplit("/", 1)[-1]) for model in models}
    slugs = list(short.values())
    return {
        model: slug if slugs.count(slug) == 1 else normalize_server_name(model)
        for model, slug in short.items()
    }


def _supports_tools(card: ModelCard) -> bool:
    return resolve_capabilities(card).supports_tool_calling


def _context(instances: Sequence[Instance]) -> int | None:
    limits = [instance.context_token_limit for instance in instances]
    known = [limit for limit in limits if limit is not None]
    return max(known) if known and len(known) == len(limits) else None


def _health(state: State, instances: Sequence[Instance]) -> str:
    if any(serves(state, instance) for instance in instances):
        return "healthy"
    broken = [
        any(
            isinstance(state.runners.get(runner), RunnerFailed)
            for runner in instance.shard_assignments.runner_to_shard
        )
        for instance in instances
    ]
    return "unreachable" if all(broken) else "degraded"


def serves(state: State, instance: Instance) -> bool:
    """Whether all ranks are ready."""
    return all(
        isinstance(state.runners.get(runner), RunnerReady | RunnerRunning)
        for runner in instance.shard_assignments.runner_to_shard
    )

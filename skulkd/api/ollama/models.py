"""What Ollama's clients ask about models: `tags`, `show`, `ps`, `version`; and what is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from aiohttp import web

from skulkd.api.errors import ApiError, ok
from skulkd.api.ollama.errors import error_response
from skulkd.api.ollama.translate import model_id
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.api.streams import send
from skulkd.placement.records import record_of
from skulkd.requests.selection import card_of
from skulkd.scheduling.unloads import Unloads
from skulkd.store.cards.model_list import resolve_capabilities
from skulkd.wire.cards import ModelCard
from skulkd.wire.downloads import DownloadCompleted
from skulkd.wire.instances import Instance
from skulkd.wire.ollama import (
    OllamaDetails,
    OllamaError,
    OllamaModel,
    OllamaModelInfo,
    OllamaModels,
    OllamaProgress,
    OllamaRunningModel,
    OllamaRunningModels,
    OllamaShowRequest,
    OllamaVersion,
)

routes = RouteTable("ollama")
# Clients ask for a minimum; this is the version whose fields are served here.
API_VERSION = "0.12.0"
# Ollama's own clients show more than twenty years as "Forever".
FOREVER = timedelta(days=36500)
_ERRORS = tuple((status, OllamaError) for status in (400, 401, 403, 404, 429, 503))


@routes.get(
    "/api/tags",
    aliases=("/ollama/api/tags", "/ollama/api/api/tags", "/ollama/api/v1/tags"),
    scope="any",
    summary="Models whose files some node has, for Ollama clients",
    answer=OllamaModels,
    other_answers=_ERRORS,
    error_format=error_response,
)
async def get_ollama_tags(request: web.Request) -> web.StreamResponse:
    node, now = services(request), datetime.now(UTC)
    models = [
        OllamaModel(
            name=card.model_id,
            model=card.model_id,
            modified_at=now,
            size=card.storage_size.in_bytes,
            digest=digest_of(card),
            details=details_of(card),
        )
        for card in await _downloaded(node)
    ]
    return await send(request, OllamaModels(models=models).model_dump_json().encode())


@routes.get(
    "/api/ps",
    aliases=("/ollama/api/ps",),
    scope="any",
    summary="Placed models, for Ollama clients",
    answer=OllamaRunningModels,
    other_answers=_ERRORS,
    error_format=error_response,
)
async def get_ollama_ps(request: web.Request) -> web.StreamResponse:
    node = services(request)
    placed = node.replica.state.instances.values()
    by_model = {card_of(instance).model_id: instance for instance in placed}
    models = []
    for name, instance in by_model.items():
        card = card_of(instance)
        models.append(
            OllamaRunningModel(
                name=name,
                model=name,
                size=card.storage_size.in_bytes,
                digest=digest_of(card),
                details=details_of(card),
                expires_at=_expires_at(node.unloads, instance),
                size_vram=card.storage_size.in_bytes,
                context_length=instance.context_token_limit or card.context_length,
            )
        )
    return await send(request, OllamaRunningModels(models=models).model_dump_json().encode())


@routes.post(
    "/api/show",
    aliases=("/ollama/api/show",),
    scope="any",
    summary="One model, for Ollama clients",
    body=OllamaShowRequest,
    answer=OllamaModelInfo,
    other_answers=_ERRORS,
    any_content_type=True,
    error_format=error_response,
)
async def post_ollama_show(request: web.Request, body: OllamaShowRequest) -> web.StreamResponse:
    card = await find_card(services(request), named(body.model, body.name))
    family = card.family or "unknown"
    info = OllamaModelInfo(
        modelfile=f"FROM {card.model_id}\n",
        parameters="",
        template="",
        details=details_of(card),
        model_info={
            "general.architecture": family,
            "general.basename": card.model_id,
            f"{family}.context_length": card.context_length,
            f"{family}.embedding_length": card.hidden_size,
            f"{family}.block_count": card.n_layers,
        },
        capabilities=capabilities_of(card),
        modified_at=datetime.now(UTC),
    )
    return await send(request, info.model_dump_json().encode())


@routes.get(
    "/api/version",
    aliases=("/ollama/api/version",),
    scope="any",
    summary="The version of Ollama's API that is served",
    answer=OllamaVersion,
    other_answers=_ERRORS,
    error_format=error_response,
    head=True,
)
async def get_ollama_version(request: web.Request) -> web.Response:
    own = services(request).identity.version
    return ok(OllamaVersion(version=API_VERSION, skulkd=own).model_dump_json().encode())


@routes.get(
    "/ollama/",
    aliases=("/ollama",),
    scope="any",
    summary="Whether an Ollama server is here",
    answer=str,
    content_type="text/plain",
    head=True,
)
async def get_ollama(request: web.Request) -> web.StreamResponse:
    return await send(request, b"Ollama is running", "text/plain; charset=utf-8")


@routes.delete(
    "/api/delete",
    aliases=("/ollama/api/delete",),
    scope="operate",
    summary="Refused: files are deleted with skulkctl",
    answer=OllamaProgress,
    other_answers=_ERRORS,
    error_format=error_response,
)
async def delete_ollama_model(_request: web.Request) -> web.Response:
    text = "models are not deleted over Ollama's API; run: skulkctl model rm MODEL --store"
    raise ApiError(400, text)


@routes.post(
    "/api/copy",
    aliases=("/ollama/api/copy",),
    scope="operate",
    summary="Refused: a model has one name here",
    answer=OllamaProgress,
    other_answers=_ERRORS,
    error_format=error_response,
)
async def post_ollama_copy(_request: web.Request) -> web.Response:
    raise ApiError(400, "models cannot be copied: each has one name here")


def named(model: str | None, name: str | None) -> str:
    """Raises ApiError."""
    if not (given := model or name):
        raise ApiError(400, "model: required")
    return model_id(given)


async def find_card(node: Services, name: str) -> ModelCard:
    """Raises ApiError."""
    card = (await node.models.catalogue()).get(name)
    if card is None:
        raise ApiError(404, f"model '{name[:200]}' not found")
    return card


def _expires_at(unloads: Unloads, instance: Instance) -> datetime:
    """While it is used its time has not begun to run."""
    on_demand = record_of(instance).on_demand
    if on_demand is None or on_demand.keep_alive_seconds is None:
        return datetime.now(UTC) + FOREVER
    after = timedelta(seconds=on_demand.keep_alive_seconds)
    return unloads.unloads_at(instance) or datetime.now(UTC) + after


def capabilities_of(card: ModelCard) -> list[str]:
    if "TextEmbedding" in card.tasks:
        return ["embedding"]
    able = resolve_capabilities(card)
    more = (("tools", able.supports_tool_calling), ("thinking", able.supports_thinking))
    return ["completion", *(name for name, has in more if has)]


def details_of(card: ModelCard) -> OllamaDetails:
    return OllamaDetails(
        parent_model=card.base_model,
        format="gguf" if card.gguf_file else "mlx",
        family=card.family,
        families=[card.family] if card.family else [],
        quantization_level=card.quantization,
    )


def digest_of(card: ModelCard) -> str:
    """Changes when the card does; the files themselves are verified elsewhere."""
    return hashlib.sha256(card.model_dump_json().encode()).hexdigest()


async def _downloaded(node: Services) -> Sequence[ModelCard]:
    """Cards of models on any node, each once."""
    catalogue = await node.models.catalogue()
    ids = [model.model_id for model in await node.models.list()]
    for entries in node.replica.state.downloads.values():
        done = [entry for entry in entries if isinstance(entry, DownloadCompleted)]
        ids += [entry.shard_metadata.model_card.model_id for entry in done]
    cards = [catalogue.get(name) for name in dict.fromkeys(ids)]
    return [card for card in cards if card is not None]

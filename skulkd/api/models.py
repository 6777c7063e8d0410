"""Models that can be placed: `GET /models`, `GET /v1/models…`, and cards of the operator's own."""

from __future__ import annotations

import time
from collections.abc import Sequence

from aiohttp import web
from pydantic import Field

from skulkd.api.audit import note
from skulkd.api.errors import ApiError, OpenAiNotFound, ok
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.api.streams import send
from skulkd.store.cards.model_list import model_entry, model_list
from skulkd.store.errors import HubTimeoutError, StoreError, UnknownModelError
from skulkd.wire.base import SnakeModel
from skulkd.wire.cards import ModelCard
from skulkd.wire.catalogue import (
    AddCustomModelParams,
    DeleteCustomModelResponse,
    ModelList,
    ModelListModel,
)
from skulkd.wire.downloads import DownloadCompleted
from skulkd.wire.errors import OpenAiErrorEnvelope
from skulkd.wire.events import CustomModelCardAdded, CustomModelCardDeleted
from skulkd.wire.ids import ModelId

routes = RouteTable("models")
DOWNLOADED = "downloaded"
_IMAGE_TASKS = frozenset({"TextToImage", "ImageToImage"})


class ModelsQuery(SnakeModel):
    status: str | None = Field(
        default=None, description='"downloaded" for those whose files some node has.'
    )


@routes.get(
    "/models", scope="any", summary="The catalogue of models", query=ModelsQuery, answer=ModelList
)
async def get_models(request: web.Request, query: ModelsQuery) -> web.StreamResponse:
    return await _list(request, query)


@routes.get(
    "/v1/models",
    scope="any",
    summary="The same for OpenAI clients",
    query=ModelsQuery,
    answer=ModelList,
)
async def get_v1_models(request: web.Request, query: ModelsQuery) -> web.StreamResponse:
    return await _list(request, query)


@routes.get(
    "/v1/models/{model_id:.+}",
    scope="any",
    summary="One model of the catalogue, for OpenAI clients",
    answer=ModelListModel,
    other_answers=((404, OpenAiErrorEnvelope),),
)
async def get_v1_model(request: web.Request) -> web.StreamResponse:
    model_id = request.match_info["model_id"]
    for card in await _cards(services(request)):
        if card.model_id == model_id:
            body = model_entry(card, int(time.time()))
            return await send(request, body.model_dump_json().encode())
    message = f"The model '{model_id[:200]}' does not exist"
    raise OpenAiNotFound(message, "model_not_found", param="model")


@routes.post(
    "/models/add",
    scope="operate",
    summary="Keep the card of a model as one of the operator's own",
    body=AddCustomModelParams,
    answer=ModelListModel,
    errors=(400, 504),
)
async def post_add_model(request: web.Request, body: AddCustomModelParams) -> web.Response:
    node = services(request)
    note(model=body.model_id)
    try:
        known = (await node.models.catalogue()).get(body.model_id)
        card = known or await node.store.lookup.find(body.model_id)
        entry = await node.models.save_card(card)
    except HubTimeoutError:
        raise
    except StoreError as error:
        hint = (
            error.hint or f"import its files first: skulkctl model import PATH --id {body.model_id}"
        )
        raise ApiError(400, f"Failed to fetch model: {error.message}; {hint}") from error
    node.journal.append(CustomModelCardAdded(model_card=entry.card))
    return ok(model_entry(entry.card, int(time.time())).model_dump_json().encode())


@routes.delete(
    "/models/custom/{model_id:.+}",
    scope="operate",
    summary="Delete a card of the operator's own",
    answer=DeleteCustomModelResponse,
    errors=(404,),
)
async def delete_custom_model(request: web.Request) -> web.Response:
    node = services(request)
    model_id = ModelId(request.match_info["model_id"])
    try:
        await node.models.delete_card(model_id)
    except UnknownModelError as error:
        raise ApiError(404, error.message) from error
    node.journal.append(CustomModelCardDeleted(model_id=model_id))
    body = DeleteCustomModelResponse(message="Model card deleted", model_id=model_id)
    return ok(body.model_dump_json().encode())


async def _cards(node: Services) -> Sequence[ModelCard]:
    cards = (await node.models.catalogue()).cards
    if node.settings.sources.environ.get("SKULK_ENABLE_IMAGE_MODELS", "").lower() == "true":
        return cards
    return [card for card in cards if not _IMAGE_TASKS.intersection(card.tasks)]


async def _list(request: web.Request, query: ModelsQuery) -> web.StreamResponse:
    node = services(request)
    cards = await _cards(node)
    if query.status == DOWNLOADED:
        there = await _downloaded(node)
        cards = [card for card in cards if card.model_id in there]
    return await send(request, model_list(cards, int(time.time())).model_dump_json().encode())


async def _downloaded(node: Services) -> set[ModelId]:
    here = {model.model_id for model in await node.models.list()}
    return here.union(
        _card(entry).model_id
        for entries in node.replica.state.downloads.values()
        for entry in entries
        if isinstance(entry, DownloadCompleted)
    )


def _card(entry: DownloadCompleted) -> ModelCard:
    return entry.shard_metadata.model_card

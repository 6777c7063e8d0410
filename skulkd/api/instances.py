"""Placing models and taking them away: `/place_instance` and `/instance`."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from aiohttp import web
from pydantic import Field

from skulkd.api.audit import note
from skulkd.api.errors import ApiError, ok
from skulkd.api.placement_errors import placement_error
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.placement.nearest import Alternative
from skulkd.placement.orders import CreateOrder, DeleteOrder, PlaceOrder
from skulkd.placement.records import record_of
from skulkd.placement.refusals import Refusal
from skulkd.scheduling.place_orders import model_shape, place_order
from skulkd.scheduling.replacement import NOT_ABOUT_THE_PLAN
from skulkd.store.errors import BadModelIdError, HubTimeoutError, StoreError, UnknownModelError
from skulkd.wire.base import SnakeModel
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import CommandId, InstanceId
from skulkd.wire.instances import Instance
from skulkd.wire.placement import (
    CreateInstanceParams,
    CreateInstanceResponse,
    DeleteInstanceResponse,
    PlaceInstanceParams,
)
from skulkd.wire.placement_record import PlacementAnswer, PlacementsAnswer, WaitingPlacement

routes = RouteTable("instances")
RECEIVED = "Command received."
NOT_FOUND = "Instance not found"
INFO_POLL_S = 1.0


class PlaceQuery(SnakeModel):
    ensure: bool = Field(
        default=False,
        description="Answer with an instance of this model that is there already, if there is one.",
    )


@routes.post(
    "/place_instance",
    scope="operate",
    summary="Let the planner place a model",
    query=PlaceQuery,
    body=PlaceInstanceParams,
    answer=CreateInstanceResponse,
    errors=(400, 404, 503, 504, 507),
)
async def post_place_instance(
    request: web.Request, query: PlaceQuery, body: PlaceInstanceParams
) -> web.Response:
    node = services(request)
    note(model=body.model_id)
    card = await find_card(node, body.model_id)
    order = await place_order(node.placements, node.models, body, card)
    order = order.model_copy(update={"ensure": query.ensure})
    instance = await _placed(node, order)
    note(instance=instance.instance_id)
    return _accepted(instance, card)


@routes.post(
    "/instance",
    scope="operate",
    summary="Create an instance exactly as given",
    body=CreateInstanceParams,
    answer=CreateInstanceResponse,
    errors=(400, 409, 503, 507),
)
async def post_instance(request: web.Request, body: CreateInstanceParams) -> web.Response:
    node = services(request)
    model_id = body.instance.shard_assignments.model_id
    note(model=model_id, instance=body.instance.instance_id)
    order = CreateOrder(
        instance=body.instance,
        excluded=body.excluded_nodes,
        only=body.only_nodes,
        shape=await model_shape(node.models, model_id),
        news=await node.placements.node_facts(model_id),
    )
    try:
        instance = await node.placements.create(order)
    except Refusal as refusal:
        raise placement_error(refusal) from refusal
    shards = instance.shard_assignments.runner_to_shard
    return _accepted(instance, next(iter(shards.values())).model_card)


@routes.get(
    "/instance/{instance_id}",
    scope="read",
    summary="One placed model",
    answer=Instance,
    errors=(404,),
)
async def get_instance(request: web.Request) -> web.Response:
    wanted = InstanceId(request.match_info["instance_id"])
    instance = services(request).replica.state.instances.get(wanted)
    if instance is None:
        raise ApiError(404, NOT_FOUND)
    return ok(instance.model_dump_json().encode())


@routes.delete(
    "/instance/{instance_id}",
    scope="operate",
    summary="Take a placed model away; its requests are cancelled",
    answer=DeleteInstanceResponse,
    errors=(404, 503, 507),
)
async def delete_instance(request: web.Request) -> web.Response:
    instance_id = InstanceId(request.match_info["instance_id"])
    try:
        await services(request).placements.delete(DeleteOrder(instance_id=instance_id))
    except Refusal as refusal:
        raise placement_error(refusal) from refusal
    body = DeleteInstanceResponse(
        message=RECEIVED, command_id=_new_command(), instance_id=instance_id
    )
    return ok(body.model_dump_json().encode())


@routes.get(
    "/v1/placements",
    scope="read",
    summary="What was asked for each placed model, how it moved and why; and what has no place",
    answer=PlacementsAnswer,
)
async def get_placements(request: web.Request) -> web.Response:
    node = services(request)
    instances = node.replica.state.instances
    answer = PlacementsAnswer(
        placements=[
            PlacementAnswer(
                instance_id=instance_id,
                model_id=instance.shard_assignments.model_id,
                record=record_of(instance),
                in_use=node.unloads.in_use(instance),
                unloads_at=node.unloads.unloads_at(instance),
            )
            for instance_id, instance in sorted(instances.items())
        ],
        waiting=[
            _waiting(instance)
            for instance in node.requests.dispatcher.unplaced()
            if instance.instance_id not in instances
        ],
    )
    return ok(answer.model_dump_json().encode())


def _waiting(instance: Instance) -> WaitingPlacement:
    shards = instance.shard_assignments.runner_to_shard
    kind = type(next(iter(shards.values()))).__name__
    return WaitingPlacement(
        instance_id=instance.instance_id,
        model_id=instance.shard_assignments.model_id,
        ranks=len(shards),
        sharding=kind.removesuffix("ShardMetadata"),
    )


async def find_card(node: Services, model_id: str) -> ModelCard:
    """The card of this id. Raises ApiError 404, 400 when its files are broken, or HubTimeoutError.

    A model without a card gets one from its config.json: in the store, staged here, or on the hub.
    """
    models = node.models
    try:
        return (await models.catalogue()).require(model_id)
    except UnknownModelError as error:
        if (problem := await models.problem(model_id)) is not None:
            raise ApiError(400, problem) from error
        try:
            return await node.store.lookup.find(model_id)
        except HubTimeoutError:
            raise
        except BadModelIdError:
            why = ""
        except StoreError as looked:
            why = f": {looked.message}"
        hint = error.hint or "see what is known: skulkctl models"
        text = f"{error.message}{why}; {hint}"
        raise ApiError(404, text, refusal={"kind": error.kind}) from error


async def _placed(node: Services, order: PlaceOrder) -> Instance:
    """An instance that fits now. What is not known yet is waited for, a little."""
    loop = asyncio.get_running_loop()
    patience_s = node.timeouts.placement_s
    gives_up_at = loop.time() + patience_s
    while True:
        try:
            return await node.placements.place(order)
        except Refusal as refusal:
            if not refusal.pending or loop.time() >= gives_up_at:
                nearest = await _nearest(node, refusal, order)
                raise placement_error(refusal, nearest, waited_s=patience_s) from refusal
        await asyncio.sleep(min(INFO_POLL_S, patience_s))


async def _nearest(node: Services, refusal: Refusal, order: PlaceOrder) -> list[Alternative]:
    if refusal.kind in NOT_ABOUT_THE_PLAN:
        return []
    smaller = (await node.models.catalogue()).smaller_variants(order.card)
    return node.placements.nearest(refusal, order, smaller)


def _accepted(instance: Instance, card: ModelCard) -> web.Response:
    body = CreateInstanceResponse(
        message=RECEIVED,
        command_id=_new_command(),
        model_card=card,
        instance_id=instance.instance_id,
    )
    return ok(body.model_dump_json().encode())


def _new_command() -> CommandId:
    return CommandId(str(uuid4()))

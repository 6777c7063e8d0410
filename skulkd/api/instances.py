"""Placing models and taking them away: `/place_instance` and `/instance`."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from aiohttp import web

from skulkd.api.dispatch import card_of
from skulkd.api.errors import ApiError, ok
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.placement.built import instance_of
from skulkd.placement.candidates import cluster_of
from skulkd.placement.fresh import make_fresh
from skulkd.placement.memory import WHOLE, Share, context_token_limit, working_set_bytes
from skulkd.placement.planner import plan
from skulkd.placement.refusals import Refusal
from skulkd.placement.wish import Wish
from skulkd.store.errors import UnknownModelError
from skulkd.wire.cards import ModelCard
from skulkd.wire.events import InstanceCreated, InstanceDeleted
from skulkd.wire.ids import CommandId, InstanceId
from skulkd.wire.instances import Instance, MlxRingInstance
from skulkd.wire.placement import (
    CreateInstanceParams,
    CreateInstanceResponse,
    DeleteInstanceResponse,
    PlaceInstanceParams,
)

routes = RouteTable("instances")
RECEIVED = "Command received."
NOT_FOUND = "Instance not found"
INFO_POLL_S = 1.0
_GIB = 1024**3


@routes.post(
    "/place_instance",
    summary="Let the planner place a model",
    body=PlaceInstanceParams,
    answer=CreateInstanceResponse,
    errors=(400, 404),
)
async def post_place_instance(request: web.Request, body: PlaceInstanceParams) -> web.Response:
    node = services(request)
    card = await _card(node, body.model_id)
    await _require_files(node, card)
    wish = Wish(
        card=card,
        sharding=body.sharding,
        min_nodes=body.min_nodes,
        excluded=frozenset(body.excluded_nodes),
    )
    instance = await _plan(node, wish)
    return _created(node, instance, card)


@routes.post(
    "/instance",
    summary="Create an instance exactly as given",
    body=CreateInstanceParams,
    answer=CreateInstanceResponse,
    errors=(400, 409),
)
async def post_instance(request: web.Request, body: CreateInstanceParams) -> web.Response:
    node = services(request)
    instance = body.instance
    _check_shape(node, instance)
    card = card_of(instance)
    _check_total_memory(node, card)
    await _require_files(node, card)
    # Looked at last: nothing may come between this and the event.
    _check_new(node, instance)
    memory = node.state.current().node_memory.get(node.identity.node_id)
    shares = [] if memory is None else [Share(WHOLE, working_set_bytes(memory))]
    limit = context_token_limit(card, shares)
    return _created(node, instance.model_copy(update={"context_token_limit": limit}), card)


@routes.get("/instance/{instance_id}", summary="One placed model", answer=Instance, errors=(404,))
async def get_instance(request: web.Request) -> web.Response:
    return ok(_find(request).model_dump_json().encode())


@routes.delete(
    "/instance/{instance_id}",
    summary="Take a placed model away; its requests are cancelled",
    answer=DeleteInstanceResponse,
    errors=(404,),
)
async def delete_instance(request: web.Request) -> web.Response:
    instance_id = _find(request).instance_id
    services(request).inference.journal.append(InstanceDeleted(instance_id=instance_id))
    body = DeleteInstanceResponse(
        message=RECEIVED, command_id=_new_command(), instance_id=instance_id
    )
    return ok(body.model_dump_json().encode())


async def _card(node: Services, model_id: str) -> ModelCard:
    models = node.inference.models
    try:
        return (await models.catalogue()).require(model_id)
    except UnknownModelError as error:
        if (problem := await models.problem(model_id)) is not None:
            raise ApiError(400, problem) from error
        hint = error.hint or "see what is known: skulkctl models"
        raise ApiError(404, f"{error.message}; {hint}") from error


async def _require_files(node: Services, card: ModelCard) -> None:
    problem = await node.inference.models.why_not_here(card.model_id)
    if problem is not None:
        raise ApiError(
            400,
            f"{problem}; bring them with: skulkctl model import PATH --id {card.model_id}"
            " (or skulkctl model pull demo for a first model)",
        )


async def _plan(node: Services, wish: Wish) -> Instance:
    """An instance that fits now. What is not known yet is waited for, a little."""
    loop = asyncio.get_running_loop()
    patience_s = node.inference.pace.placement_s
    gives_up_at = loop.time() + patience_s
    while True:
        state = node.state.current()
        taken = [
            instance.ephemeral_port
            for instance in state.instances.values()
            if isinstance(instance, MlxRingInstance)
        ]
        try:
            cluster = cluster_of(state, wish.card.model_id)
            found = plan(wish, cluster)
            return instance_of(found, cluster.links, make_fresh(len(found.ranks), taken))
        except Refusal as refusal:
            if not refusal.pending:
                raise ApiError(400, _with_hints(refusal)) from refusal
            if loop.time() >= gives_up_at:
                message = f"{refusal} (waited {patience_s:g}s)"
                raise ApiError(503, message, headers={"Retry-After": "5"}) from refusal
        await asyncio.sleep(min(INFO_POLL_S, patience_s))


def _with_hints(refusal: Refusal) -> str:
    return "\n".join([str(refusal), *(f"hint: {hint}" for hint in refusal.hints)])


def _check_shape(node: Services, instance: Instance) -> None:
    """Only what this node can carry out by itself."""
    own = node.identity.node_id
    if list(instance.shard_assignments.node_to_runner) != [own]:
        raise ApiError(400, f"this node can only create instances on itself alone ({own})")
    shards = instance.shard_assignments.runner_to_shard.values()
    if len(shards) != 1 or any(shard.world_size != 1 for shard in shards):
        raise ApiError(400, "an instance on one node has exactly one shard, of world size 1")
    if card_of(instance).model_id != instance.shard_assignments.model_id:
        raise ApiError(400, "the shard's card is of another model than the instance")


def _check_total_memory(node: Services, card: ModelCard) -> None:
    memories = node.state.current().node_memory.values()
    available = sum(memory.ram_available.in_bytes for memory in memories)
    required = card.storage_size.in_bytes
    if required > available:
        raise ApiError(
            400,
            f"too little memory for {card.model_id}. Required: {required / _GIB:.1f}GB,"
            f" Available: {available / _GIB:.1f}GB",
        )


def _check_new(node: Services, instance: Instance) -> None:
    known = node.replica.state.instances
    runners = {
        runner_id
        for other in known.values()
        for runner_id in other.shard_assignments.runner_to_shard
    }
    if instance.instance_id in known or runners & set(instance.shard_assignments.runner_to_shard):
        raise ApiError(409, "an instance with this id, or a runner with this id, is there already")


def _created(node: Services, instance: Instance, card: ModelCard) -> web.Response:
    node.inference.journal.append(InstanceCreated(instance=instance))
    body = CreateInstanceResponse(
        message=RECEIVED,
        command_id=_new_command(),
        model_card=card,
        instance_id=instance.instance_id,
    )
    return ok(body.model_dump_json().encode())


def _find(request: web.Request) -> Instance:
    wanted = InstanceId(request.match_info["instance_id"])
    instance = services(request).replica.state.instances.get(wanted)
    if instance is None:
        raise ApiError(404, NOT_FOUND)
    return instance


def _new_command() -> CommandId:
    return CommandId(str(uuid4()))

"""What the planner would do, without doing it: `/instance/previews` and `/instance/placement`."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from aiohttp import web
from pydantic import Field

from skulkd.api.errors import ApiError, ok
from skulkd.api.instances import find_card
from skulkd.api.placement_errors import refusal_object, refusal_text
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.placement.built import instance_of
from skulkd.placement.candidates import VRAM_POOL, Cluster
from skulkd.placement.memory import need_of
from skulkd.placement.nearest import Alternative, alternatives
from skulkd.placement.orders import PlaceOrder, names_for, planned_instance
from skulkd.placement.planner import PlacementPlan, PlannedRank
from skulkd.placement.previews import Preview, previews
from skulkd.placement.refusals import Refusal
from skulkd.placement.wish import Wish
from skulkd.scheduling.place_orders import place_order
from skulkd.wire.base import SnakeModel
from skulkd.wire.ids import InstanceId, ModelId, NodeId
from skulkd.wire.instances import Instance
from skulkd.wire.placement import (
    InstanceMeta,
    NodeNeed,
    PlaceInstanceParams,
    PlacementPreview,
    PlacementPreviewResponse,
    Sharding,
)
from skulkd.wire.state import State

routes = RouteTable("instances")


class PreviewQuery(SnakeModel):
    model_id: ModelId
    node_ids: list[NodeId] = Field(default_factory=list, description="Must all be used.")
    excluded_node_ids: list[NodeId] = Field(default_factory=list)
    only_node_ids: list[NodeId] = Field(default_factory=list, description="Use none but these.")
    need_files: bool = Field(
        default=False, description="Refuse when no node has the model's files, as placing does."
    )


class PlacementQuery(SnakeModel):
    model_id: ModelId
    sharding: Sharding = "Pipeline"
    instance_meta: InstanceMeta = "MlxRing"
    min_nodes: int = 1
    excluded_node_ids: list[NodeId] = Field(default_factory=list)
    only_node_ids: list[NodeId] = Field(default_factory=list, description="Use none but these.")


@routes.get(
    "/instance/previews",
    scope="read",
    summary="Every way to place a model, or why it does not work",
    query=PreviewQuery,
    answer=PlacementPreviewResponse,
    errors=(400, 504),
)
async def get_previews(request: web.Request, query: PreviewQuery) -> web.Response:
    node = services(request)
    if not node.placements.state().topology.nodes:
        return ok(PlacementPreviewResponse(previews=[]).model_dump_json().encode())
    try:
        card = await find_card(node, query.model_id)
    except ApiError as error:
        # The contract's own status and words for an unknown model, here and only here.
        text = f"Failed to load model card: {error.message}"
        raise ApiError(400, text, refusal=error.refusal) from error
    wanted = PlaceInstanceParams(
        model_id=card.model_id,
        excluded_nodes=query.excluded_node_ids,
        only_nodes=query.only_node_ids,
    )
    order = await place_order(node.placements, node.models, wanted, card)
    order = order.model_copy(update={"required": query.node_ids})
    if not query.need_files:
        order = await _with_files_to_come(node, order)
    smaller = (await node.models.catalogue()).smaller_variants(card)
    state, cluster = node.placements.view(order)

    def nearest(refusal: Refusal, wish: Wish) -> list[Alternative]:
        return alternatives(refusal, wish, cluster, state, smaller)

    rows = [_row(preview, cluster, state, nearest) for preview in previews(order.wish, cluster)]
    return ok(PlacementPreviewResponse(previews=rows).model_dump_json().encode())


@routes.get(
    "/instance/placement",
    scope="read",
    summary="The instance that would be placed",
    query=PlacementQuery,
    answer=Instance,
    errors=(400, 404, 504),
)
async def get_placement(request: web.Request, query: PlacementQuery) -> web.Response:
    node = services(request)
    card = await find_card(node, query.model_id)
    wanted = PlaceInstanceParams(
        model_id=card.model_id,
        sharding=query.sharding,
        instance_meta=query.instance_meta,
        min_nodes=query.min_nodes,
        excluded_nodes=query.excluded_node_ids,
        only_nodes=query.only_node_ids,
    )
    order = await place_order(node.placements, node.models, wanted, card)
    state, cluster = node.placements.view(order)
    try:
        instance = planned_instance(order.wish, cluster, state, order.instance_id)
    except Refusal as refusal:
        smaller = (await node.models.catalogue()).smaller_variants(card)
        near = alternatives(refusal, order.wish, cluster, state, smaller)
        # This one does not wait, so what is pending is an answer like any other.
        told = refusal_object(refusal, near)
        raise ApiError(400, refusal_text(refusal, near), refusal=told) from refusal
    return ok(instance.model_dump_json().encode())


async def _with_files_to_come(node: Services, order: PlaceOrder) -> PlaceOrder:
    """The order as if the files were there, when no node has any: they can still be brought.

    Files that are here and broken stay a reason.
    """
    absent = all(facts.files_problem is not None for facts in order.news.values())
    if not absent or await node.models.problem(order.card.model_id) is not None:
        return order
    facts = {
        node_id: own.model_copy(update={"files_problem": None})
        for node_id, own in order.news.items()
    }
    return order.model_copy(update={"news": facts})


def _row(
    preview: Preview,
    cluster: Cluster,
    state: State,
    nearest: Callable[[Refusal, Wish], list[Alternative]],
) -> PlacementPreview:
    outcome = preview.outcome
    if isinstance(outcome, PlacementPlan):
        return _planned(preview, outcome, cluster, state)
    near = nearest(outcome, preview.wish)
    return PlacementPreview(
        model_id=preview.wish.card.model_id,
        sharding=preview.wish.sharding,
        instance_meta=preview.wish.meta,
        error=refusal_text(outcome, near),
        refusal=refusal_object(outcome, near),
    )


def _planned(
    preview: Preview, found: PlacementPlan, cluster: Cluster, state: State
) -> PlacementPreview:
    wish = preview.wish
    fresh = names_for(InstanceId(str(uuid4())), found.node_ids, state)

    def stored(rank: PlannedRank) -> int | None:
        return need_of(wish.card, rank.part).weights_bytes if found.unpacked else None

    return PlacementPreview(
        model_id=wish.card.model_id,
        sharding=wish.sharding,
        instance_meta=wish.meta,
        instance=instance_of(found, cluster.links, fresh),
        memory_delta_by_node={rank.node.node_id: rank.need.weights_bytes for rank in found.ranks},
        effective_sharding=found.sharding,
        effective_instance_meta=found.meta,
        context_token_limit=found.context_tokens,
        need_by_node={
            rank.node.node_id: NodeNeed(
                total_bytes=rank.need.total_bytes,
                weights_bytes=rank.need.weights_bytes,
                overhead_bytes=rank.need.overhead_bytes,
                kv_bytes=rank.need.kv_bytes,
                floor_bytes=rank.need.floor_bytes,
                usable_bytes=rank.budget.usable_bytes,
                pool="vram" if rank.budget.pool == VRAM_POOL else "ram",
                unpacked_from_bytes=stored(rank),
            )
            for rank in found.ranks
        },
    )

"""The order of a placement, with what the nodes report about themselves and the model."""

from __future__ import annotations

from dataclasses import asdict
from uuid import uuid4

from skulkd.placement.orders import PlaceOrder
from skulkd.placement.shape import shape_from_config
from skulkd.scheduling.placements import Placements
from skulkd.store.local_models import LocalModels
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import InstanceId, ModelId
from skulkd.wire.placement import PlaceInstanceParams


async def place_order(
    placements: Placements, models: LocalModels, wanted: PlaceInstanceParams, card: ModelCard
) -> PlaceOrder:
    """The order that the master gets."""
    return PlaceOrder(
        instance_id=InstanceId(str(uuid4())),
        card=card,
        sharding=wanted.sharding,
        meta=wanted.instance_meta,
        min_nodes=wanted.min_nodes,
        excluded=wanted.excluded_nodes,
        only=wanted.only_nodes,
        shape=await model_shape(models, card.model_id),
        news=await placements.node_facts(card.model_id),
    )


async def model_shape(models: LocalModels, model_id: ModelId) -> dict[str, int]:
    """What the files that are here say of the model beyond its card."""
    shape = shape_from_config(await models.config(model_id))
    return {key: value for key, value in asdict(shape).items() if value is not None}

"""Calls about placements: planning, placing, deleting, restarting, and what became of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skulkctl.daemon import stock
from skulkctl.daemon.answers import raise_for_status
from skulkctl.daemon.calls import Call, Steps, ask, call, is_stock, request, segment
from skulkctl.errors import CliError

if TYPE_CHECKING:
    from skulkd.wire.placement import (
        CreateInstanceParams,
        CreateInstanceResponse,
        DeleteInstanceResponse,
        PlaceInstanceParams,
        PlacementPreviewResponse,
        RestartInstanceResponse,
    )
    from skulkd.wire.placement_record import PlacementsAnswer

# A node that still gathers what it needs holds the answer back for 15 s before it refuses.
PLAN_S = 30.0


def previews(wanted: PlaceInstanceParams, *, need_files: bool) -> Steps[PlacementPreviewResponse]:
    """Every combination the planner sees.

    Without `need_files` a model that no node has the files of is planned, too.
    """
    from skulkd.wire.placement import PlacementPreviewResponse

    query = [("model_id", str(wanted.model_id)), *_nodes(wanted)]
    query += [("need_files", "true")] if need_files else []
    planned = call(
        "GET", "/instance/previews", PlacementPreviewResponse, query=query, usual_s=PLAN_S
    )
    return (yield from stock.refusals_with_codes(planned, wanted.model_id))


def explain(wanted: PlaceInstanceParams) -> Call[None]:
    """Whether the planner would place this; nothing is. Raises Refused with its reason."""
    query = [
        ("model_id", str(wanted.model_id)),
        ("sharding", wanted.sharding),
        ("instance_meta", wanted.instance_meta),
        ("min_nodes", str(wanted.min_nodes)),
        *_nodes(wanted),
    ]
    return Call(request("GET", "/instance/placement", query=query), raise_for_status, PLAN_S)


def place(wanted: PlaceInstanceParams, *, ensure: bool) -> Steps[CreateInstanceResponse]:
    """Let the planner place a model. With `ensure` it may be one that is there already."""
    from skulkd.wire.placement import CreateInstanceResponse

    query = [("ensure", "true")] if ensure else []
    placed = call(
        "POST", "/place_instance", CreateInstanceResponse, query=query, body=wanted, usual_s=PLAN_S
    )
    return (yield from stock.refusals_with_codes(placed, wanted.model_id))


def create(wanted: CreateInstanceParams) -> Call[CreateInstanceResponse]:
    """Place an instance exactly as it is given."""
    from skulkd.wire.placement import CreateInstanceResponse

    return call("POST", "/instance", CreateInstanceResponse, body=wanted, usual_s=PLAN_S)


def delete(instance_id: str) -> Call[DeleteInstanceResponse]:
    """Unload a model; its requests are cancelled."""
    from skulkd.wire.placement import DeleteInstanceResponse

    return call("DELETE", f"/instance/{segment(instance_id)}", DeleteInstanceResponse)


def restart_runners(instance_id: str) -> Call[RestartInstanceResponse]:
    """New processes for the runners of an instance, on the same nodes."""
    from skulkd.wire.placement import RestartInstanceResponse

    return call("POST", f"/v1/instances/{segment(instance_id)}/restart", RestartInstanceResponse)


def can_restart_runners() -> Steps[bool]:
    return not (yield from is_stock())


def placements() -> Steps[PlacementsAnswer]:
    """What was asked for each placed model and how it moved. Empty when nobody can say."""
    from skulkd.wire.placement_record import PlacementsAnswer

    if (yield from is_stock()):
        return PlacementsAnswer(placements=[])
    try:
        return (yield from ask(call("GET", "/v1/placements", PlacementsAnswer)))
    except CliError:
        return PlacementsAnswer(placements=[])


def _nodes(wanted: PlaceInstanceParams) -> list[tuple[str, str]]:
    excluded = [("excluded_node_ids", str(node)) for node in wanted.excluded_nodes]
    return excluded + [("only_node_ids", str(node)) for node in wanted.only_nodes]

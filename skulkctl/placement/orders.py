"""Placing a model, for every command that does: what is asked for, planned, refused."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import values
from skulkctl.daemon.codes import UNKNOWN_MODEL
from skulkctl.errors import CliError, NotFound, Refused, RouteMissing, UsageMistake

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from skulkctl.cli import Invocation
    from skulkctl.daemon.state import ClusterState
    from skulkctl.nodes.rows import NodeItem
    from skulkctl.placement.instances import InstanceItem
    from skulkctl.placement.plans import PlacedItem
    from skulkd.wire.placement import (
        PlaceInstanceParams,
        PlacementPreview,
        PlacementPreviewResponse,
    )

APPEAR_S = 5.0
_NO_ROOM = "DoesNotFit"
_TRY_AGAIN = frozenset({"InfoPending", "no_master", "ClusterDown", "StorageFailed"})
"""Codes of refusals that may pass on a retry."""


class Sharding(StrEnum):
    """Values of `--sharding`."""

    PIPELINE = "Pipeline"
    TENSOR = "Tensor"


class InstanceMeta(StrEnum):
    """Values of `--instance-meta`."""

    MLX_RING = "MlxRing"
    MLX_JACCL = "MlxJaccl"


@dataclass(frozen=True)
class Where:
    """Which nodes may be used: by name, id or a unique prefix."""

    exclude: Annotated[
        list[str] | None,
        typer.Option(
            "--exclude",
            metavar="NODE",
            autocompletion=values.nodes,
            help="Do not use this node (repeatable).",
        ),
    ] = None
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NODE",
            autocompletion=values.nodes,
            help="Use only these nodes (repeatable).",
        ),
    ] = None


@dataclass(frozen=True)
class Division:
    """How a model is divided."""

    sharding: Annotated[
        Sharding,
        typer.Option(
            "--sharding",
            metavar="HOW",
            case_sensitive=False,
            help="Shard the model as Pipeline (by layers) or Tensor.",
        ),
    ] = Sharding.PIPELINE
    instance_meta: Annotated[
        InstanceMeta,
        typer.Option(
            "--instance-meta",
            metavar="LINK",
            case_sensitive=False,
            help="Connect the ranks with MlxRing or MlxJaccl (RDMA).",
        ),
    ] = InstanceMeta.MLX_RING
    min_nodes: Annotated[
        int,
        typer.Option(
            "--min-nodes", metavar="N", min=1, help="Distribute the model over at least N nodes."
        ),
    ] = 1


@dataclass(frozen=True)
class Order:
    """What to place, and the state it was decided on."""

    params: PlaceInstanceParams
    state: ClusterState

    @property
    def model_id(self) -> str:
        return self.params.model_id


def make_order(call: Invocation, model: str) -> Order:
    """What `/place_instance` is to do for the options of this call, names resolved to ids."""
    from skulkctl.nodes.rows import node_items
    from skulkd.wire.ids import ModelId
    from skulkd.wire.placement import PlaceInstanceParams

    where, division = call.options(Where), call.options(Division)
    state = call.daemon.state()
    excluded, only = _nodes(node_items(state), where.exclude, where.only)
    wanted = {
        "model_id": ModelId(find_model_id(call, model)),
        "sharding": division.sharding.value,
        "instance_meta": division.instance_meta.value,
        "min_nodes": division.min_nodes,
        "excluded_nodes": excluded,
    }
    return Order(
        PlaceInstanceParams.model_validate({**wanted, **({"only_nodes": only} if only else {})}),
        state,
    )


def _nodes(
    nodes: Sequence[NodeItem], exclude: Iterable[str] | None, only: Iterable[str] | None
) -> tuple[list[str], list[str]]:
    """Ids of the nodes to leave out and of those to use. Raises UsageMistake, NotFound."""
    from skulkctl.nodes.rows import find_node

    excluded = [find_node(nodes, name)["id"] for name in exclude or ()]
    chosen = [find_node(nodes, name)["id"] for name in only or ()]
    if both := sorted(set(excluded) & set(chosen)):
        raise UsageMistake(f"{both[0]} cannot be in --exclude and in --only")
    if chosen:
        # A server that knows only exclusions gets all others as such.
        others = [node["id"] for node in nodes if node["id"] not in chosen]
        excluded = list(dict.fromkeys([*excluded, *others]))
    return excluded, chosen


def find_model_id(call: Invocation, typed: str) -> str:
    """The full id. An id with a slash is passed on unchanged: the daemon may know more models."""
    from skulkctl.models.rows import find_model

    if "/" in typed:
        return typed
    # A model with files here is preferred to one that is only in the catalogue.
    here = [model.id for model in call.daemon.models(downloaded=True).data]
    everything = [model.id for model in call.daemon.models().data]
    found = find_model(here, typed) or find_model(everything, typed)
    if found is None:
        raise unknown_model(typed, everything)
    return found


def unknown_model(typed: str, ids: Sequence[str], why: Sequence[str] = ()) -> CliError:
    """`why` is what the daemon says of where it looked."""
    from skulkctl.models.rows import nearest

    near = [f"did you mean {model_id}?" for model_id in nearest(ids, typed)]
    return NotFound(
        f"no model named {typed}",
        *why,
        hints=[
            *near,
            "skulkctl models",
            "import one:  skulkctl model import PATH --id ORG/NAME",
        ],
    )


def fetch_previews(
    call: Invocation, order: Order, *, need_files: bool = True
) -> PlacementPreviewResponse:
    """Every combination the planner sees. Raises RouteMissing, Refused, NotFound.

    Without `need_files` the daemon plans a model that no node has the files of, too.
    """
    try:
        return call.daemon.previews(order.params, need_files=need_files)
    except RouteMissing as error:
        raise RouteMissing(
            "this server cannot preview placements",
            hints=[f"place it:  skulkctl place {order.model_id}"],
            details=error.details,
        ) from error
    except CliError as error:
        raise _explained(call, order, error) from error


def why_not(call: Invocation, order: Order) -> Refused:
    """Why the planner would not place this; asked for once more, for the reason alone."""
    try:
        call.daemon.explain(order.params)
    except Refused as error:
        return refused(order, error.why, error)
    return refused(order, [f"no placement on at least {order.params.min_nodes} nodes"])


def ask_daemon(call: Invocation, order: Order, *, ensure: bool = False) -> str | None:
    """The new instance's id; None when a server that does not tell shows none either.

    With `ensure` it may be the id of one that another client has placed meanwhile.
    """
    try:
        answer = call.daemon.place(order.params, ensure=ensure)
    except CliError as error:
        raise _explained(call, order, error) from error
    return answer.instance_id or _wait_until_seen(call, order)


def create_exactly(call: Invocation, order: Order, preview: PlacementPreview) -> str:
    """Carry out a preview as it is; the id of its instance. Raises Refused when it is stale."""
    from skulkd.wire.placement import CreateInstanceParams

    instance, params = preview.instance, order.params
    if instance is None:
        raise refused(order, [preview.error or "no reason given"])
    named = {
        key: nodes
        for key, nodes in (
            ("excluded_nodes", params.excluded_nodes),
            ("only_nodes", params.only_nodes),
        )
        if nodes
    }
    try:
        call.daemon.create(CreateInstanceParams(instance=instance, **named))
    except CliError as error:
        raise _explained(call, order, error) from error
    return instance.instance_id


def _wait_until_seen(call: Invocation, order: Order) -> str | None:
    from skulkctl.placement.plans import new_instance_id
    from skulkctl.polling import poll_until

    return poll_until(
        lambda _left_s: call.daemon.state(),
        lambda state: new_instance_id(order.state.instances, state, order.model_id),
        APPEAR_S,
    )


def look_up(call: Invocation, instance_id: str, order: Order) -> InstanceItem | PlacedItem:
    """The instance as it is now; only its names while the state does not show it."""
    from skulkctl.placement.instances import instance_items

    items = instance_items(call.daemon.state())
    unseen: PlacedItem = {"id": instance_id, "modelId": order.model_id, "nodes": []}
    return next((item for item in items if item["id"] == instance_id), unseen)


def _explained(call: Invocation, order: Order, error: CliError) -> CliError:
    """What the daemon refused, in the words of this order."""
    if error.code == UNKNOWN_MODEL:
        ids = [model.id for model in call.daemon.models().data]
        return unknown_model(order.model_id, ids, error.why)
    # Only what is about the order; a missing token, for one, is not.
    return refused(order, error.why, error) if type(error) is Refused else error


def refused(order: Order, lines: Sequence[str], cause: CliError | None = None) -> Refused:
    """Reasons by line with nodes by name, and what would help."""
    from skulkctl.placement.instances import instance_items
    from skulkctl.placement.plans import refusal_lines, room_hint

    code = cause.code if cause else None
    why, hints = refusal_lines(lines, order.state)
    if not hints and code == _NO_ROOM:
        room = room_hint(instance_items(order.state))
        hints = ["smaller models:  skulkctl models --sort size", *([room] if room else [])]
    later = code in _TRY_AGAIN
    return Refused(
        f"cannot place {order.model_id}{' yet' if later else ''}",
        *why,
        hints=["try again in a few seconds", *hints] if later else hints,
        details=cause.details if cause else (),
    )

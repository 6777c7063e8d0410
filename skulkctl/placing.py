"""Placing a model, for every command that does: what is asked for, planned, refused."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import typer

from skulkctl.errors import CliError, NotFound, Refused, RouteMissing, UsageMistake
from skulkctl.options import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skulkctl.answers import Answer
    from skulkctl.invocation import Invocation
    from skulkctl.views.read import Document

# A node that still gathers what it needs holds the answer back for 15 s before it refuses.
PLAN_S = 30.0
APPEAR_S = 5.0
_POLL_S = 0.25
_GIGABYTES = re.compile(r"\d\.\d GiB")


@options
def WHERE(
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="NODE", help="Not on this node; may be repeated."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NODE", help="On no node but these; may be repeated."),
    ] = None,
) -> None:
    """Which nodes may be used: by name, id or a unique prefix."""


@options
def HOW(
    sharding: Annotated[
        str, typer.Option("--sharding", metavar="HOW", help="Pipeline (layers) or Tensor.")
    ] = "Pipeline",
    instance_meta: Annotated[
        str,
        typer.Option("--instance-meta", metavar="LINK", help="MlxRing or MlxJaccl (RDMA)."),
    ] = "MlxRing",
    min_nodes: Annotated[
        int, typer.Option("--min-nodes", metavar="N", min=1, help="Share it over at least N nodes.")
    ] = 1,
) -> None:
    """How a model is divided."""


@dataclass(frozen=True)
class Order:
    """What to place, and the state it was decided on."""

    body: Document
    state: Document

    @property
    def model_id(self) -> str:
        return str(self.body["model_id"])


def make_order(call: Invocation, model: str) -> Order:
    """The body of `/place_instance` for the options of this call, names resolved to ids."""
    from skulkctl.fetch import fetch_state
    from skulkctl.views.placement import METAS, SHARDINGS, placement_body

    chosen = call.options
    sharding = _choice("--sharding", str(chosen.get("sharding", "Pipeline")), SHARDINGS)
    meta = _choice("--instance-meta", str(chosen.get("instance_meta", "MlxRing")), METAS)
    snapshot = fetch_state(call.client)
    nodes = snapshot.nodes()
    excluded = _node_ids(nodes, listed(chosen.get("exclude")))
    only = _node_ids(nodes, listed(chosen.get("only")))
    if both := sorted(set(excluded) & set(only)):
        raise UsageMistake(f"{both[0]} cannot be excluded and be among the only ones")
    if only:
        # A stock node knows only exclusions, so all others are excluded for it as well.
        others = [str(node["id"]) for node in nodes if node["id"] not in only]
        excluded = list(dict.fromkeys([*excluded, *others]))
    model_id = find_model_id(call, model)
    count = chosen.get("min_nodes", 1)
    least = count if isinstance(count, int) else 1
    return Order(placement_body(model_id, sharding, meta, least, excluded, only), snapshot.state)


def _choice(option: str, typed: str, choices: Sequence[str]) -> str:
    for choice in choices:
        if typed.casefold() == choice.casefold():
            return choice
    raise UsageMistake(f"{option} {typed}: choose one of {', '.join(choices)}")


def _node_ids(nodes: Sequence[Document], typed: Sequence[object]) -> list[str]:
    from skulkctl.views.nodes import find_node

    return [str(find_node(nodes, str(name))["id"]) for name in typed]


def listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else []


def find_model_id(call: Invocation, typed: str) -> str:
    """The id in full. One with a slash goes to the daemon as it is: it may know more."""
    from skulkctl.views.models import catalogue_ids, find_model

    if "/" in typed:
        return typed
    # What has files here is meant rather than what is only in the catalogue.
    here = catalogue_ids(call.client.get("/models", status="downloaded"))
    everything = catalogue_ids(call.client.get("/models"))
    found = find_model(here, typed) or find_model(everything, typed)
    if found is None:
        raise unknown_model(typed, everything)
    return found


def unknown_model(typed: str, ids: Sequence[str], why: Sequence[str] = ()) -> CliError:
    """`why` is what the daemon says of where it looked."""
    from skulkctl.views.models import nearest

    near = [f"did you mean {model_id}?" for model_id in nearest(ids, typed)]
    return NotFound(
        f"no model named {typed}",
        *why,
        hints=[*near, "skulkctl models", "bring one:  skulkctl model import PATH --id ORG/NAME"],
    )


def fetch_previews(call: Invocation, order: Order, *, need_files: bool = True) -> object:
    """Every combination the planner sees. Raises RouteMissing, Refused, NotFound.

    Without `need_files` the daemon plans a model that no node has the files of, too.
    """
    from skulkctl.answers import error_of, is_missing_route, message_lines, read_json

    query = [("model_id", order.model_id)]
    query += [("excluded_node_ids", str(n)) for n in listed(order.body["excluded_nodes"])]
    query += [("only_node_ids", str(n)) for n in listed(order.body.get("only_nodes"))]
    query += [("need_files", "true")] if need_files else []
    call.client.timeout_s = call.timeout_s(PLAN_S)
    answer = call.client.send("GET", f"/instance/previews?{urlencode(query)}")
    if answer.ok:
        return read_json(answer)
    # Without such an endpoint "previews" is taken for the id of an instance.
    if answer.status == HTTPStatus.NOT_FOUND or is_missing_route(answer):
        raise RouteMissing(
            "this server cannot plan without placing",
            hints=[f"place it:  skulkctl place {order.model_id}"],
            details=error_of(answer).details,
        )
    if answer.status == HTTPStatus.BAD_REQUEST:
        raise _unplannable(call, order, message_lines(answer), error_of(answer))
    raise error_of(answer)


def why_not(call: Invocation, order: Order) -> Refused:
    """Why the planner would not place this; asked for once more, for the reason alone."""
    from skulkctl.answers import error_of, message_lines

    keys = ("model_id", "sharding", "instance_meta", "min_nodes")
    query = [(key, str(order.body[key])) for key in keys]
    query += [("excluded_node_ids", str(n)) for n in listed(order.body["excluded_nodes"])]
    query += [("only_node_ids", str(n)) for n in listed(order.body.get("only_nodes"))]
    answer = call.client.send("GET", f"/instance/placement?{urlencode(query)}")
    if answer.status == HTTPStatus.BAD_REQUEST:
        return refused(order, message_lines(answer), error_of(answer))
    return refused(order, [f"no placement on at least {order.body['min_nodes']} nodes"])


def _unplannable(call: Invocation, order: Order, lines: Sequence[str], said: CliError) -> CliError:
    """A 400 for previews is about the card: either nobody knows the model or it is broken."""
    from skulkctl.views.models import catalogue_ids

    ids = catalogue_ids(call.client.get_optional("/models"))
    if ids and order.model_id not in ids:
        return unknown_model(order.model_id, ids, lines)
    return refused(order, lines, said)


def ask_daemon(call: Invocation, order: Order, *, ensure: bool = False) -> str | None:
    """The new instance's id; None when a server that does not tell shows none either.

    With `ensure` it may be the id of one that another client has placed meanwhile.
    """
    import json

    from skulkctl.answers import read_json
    from skulkctl.views.read import text

    client = call.client
    client.timeout_s = call.timeout_s(PLAN_S)
    path = "/place_instance?ensure=true" if ensure else "/place_instance"
    answer = client.send("POST", path, body=json.dumps(order.body).encode())
    if not answer.ok:
        raise _placement_error(call, order, answer)
    return text(read_json(answer), "instance_id") or _wait_until_seen(call, order)


def create_exactly(call: Invocation, order: Order, preview: Document) -> str:
    """Carry out a preview as it is; the id of its instance. Raises Refused when it is stale."""
    import json

    from skulkctl.answers import error_of, message_lines
    from skulkctl.views.read import tagged, text

    instance = preview.get("instance")
    client = call.client
    client.timeout_s = call.timeout_s(PLAN_S)
    named = {key: listed(order.body.get(key)) for key in ("excluded_nodes", "only_nodes")}
    kept = {key: nodes for key, nodes in named.items() if nodes}
    body = json.dumps({"instance": instance, **kept}).encode()
    answer = client.send("POST", "/instance", body=body)
    if not answer.ok:
        if answer.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT):
            raise refused(order, message_lines(answer), error_of(answer))
        raise error_of(answer)
    return text(tagged(instance)[1], "instanceId") or ""


def _wait_until_seen(call: Invocation, order: Order) -> str | None:
    from skulkctl.fetch import fetch_state
    from skulkctl.views.placement import new_instance_id
    from skulkctl.views.read import mapping

    before = list(mapping(order.state, "instances"))
    end = time.monotonic() + APPEAR_S
    while True:
        found = new_instance_id(before, fetch_state(call.client).state, order.model_id)
        if found is not None or time.monotonic() >= end:
            return found
        time.sleep(_POLL_S)


def look_up(call: Invocation, instance_id: str, order: Order) -> Document:
    """The instance as it is now; only its names while the state does not show it."""
    from skulkctl.fetch import fetch_state
    from skulkctl.views.instances import instance_items

    items = instance_items(fetch_state(call.client).state)
    unseen: Document = {"id": instance_id, "modelId": order.model_id, "nodes": []}
    return next((item for item in items if item["id"] == instance_id), unseen)


def _placement_error(call: Invocation, order: Order, answer: Answer) -> CliError:
    from skulkctl.answers import error_of, is_missing_route, message_lines
    from skulkctl.views.models import catalogue_ids

    lines = message_lines(answer)
    if answer.status == HTTPStatus.BAD_REQUEST:
        return refused(order, lines, error_of(answer))
    if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
        error = refused(order, lines, error_of(answer), "yet")
        error.hints = ("try again in a few seconds", *error.hints)
        return error
    if answer.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.INTERNAL_SERVER_ERROR):
        return error_of(answer)
    if is_missing_route(answer):
        return error_of(answer)
    # A stock node fails with 500 when it cannot find a model.
    ids = catalogue_ids(call.client.get("/models"))
    if order.model_id in ids:
        return error_of(answer)
    looked = lines if answer.status == HTTPStatus.NOT_FOUND else []
    return unknown_model(order.model_id, ids, looked)


def refused(
    order: Order, lines: Sequence[str], said: CliError | None = None, yet: str = ""
) -> Refused:
    """Reasons by line with nodes by name, and what would help; a stock node gives no hints."""
    from skulkctl.views.instances import instance_items
    from skulkctl.views.placement import refusal_lines, room_hint

    why, hints = refusal_lines(lines, order.state)
    if not hints and any(_GIGABYTES.search(line) for line in why):
        room = room_hint(instance_items(order.state))
        hints = ["smaller models:  skulkctl models --sort size", *([room] if room else [])]
    return Refused(
        f"cannot place {order.model_id} {yet}".rstrip(),
        *why,
        hints=hints,
        details=said.details if said else (),
    )

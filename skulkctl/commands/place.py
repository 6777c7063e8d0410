"""`skulkctl place`: let the planner place a model, and watch it become ready."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import typer

from skulkctl.command import new_app
from skulkctl.errors import CliError, NotFound, Refused, RouteMissing, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import CONFIRM, FORMAT, REACH, verb
from skulkctl.stdout import write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skulkctl.answers import Answer
    from skulkctl.views.read import Document

app = new_app()

# A node that still gathers what it needs holds the answer back for 15 s before it refuses.
PLAN_S = 30.0
APPEAR_S = 5.0
_POLL_S = 0.25
_GIGABYTES = re.compile(r"\d\.\dGB")

EXAMPLES = """
  skulkctl place skulk/SmolLM2-135M-Instruct --wait
  skulkctl place SmolLM2 --wait --timeout 2m      the only id that begins like this
  skulkctl place mlx-community/Qwen3-0.6B-4bit --min-nodes 2 --sharding Tensor
  skulkctl place mlx-community/Qwen3-0.6B-4bit --exclude kite3 --dry-run
"""


@verb(app, "place", REACH, FORMAT, CONFIRM, examples=EXAMPLES)
def place(
    call: Invocation,
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Id, its part after the slash, or a prefix.")
    ],
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
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="NODE", help="Not on this node; may be repeated."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when it is ready; progress goes to stderr.")
    ] = False,
) -> int:
    """Place a model: the daemon's planner chooses the nodes and loads it there.

    Returns as soon as the daemon has accepted. With --wait it returns when the model is ready:
    exit 1 when a runner fails, 6 when --timeout (10m if not given) is over and loading goes on.
    Exit 4 means that the planner refused and nothing changed, 3 that nobody knows the model.
    """
    from skulkctl.fetch import fetch_state
    from skulkctl.views.placement import METAS, SHARDINGS, placement_body

    shards = _choice("--sharding", sharding, SHARDINGS)
    meta = _choice("--instance-meta", instance_meta, METAS)
    snapshot = fetch_state(call.client)
    excluded = _excluded_ids(snapshot.nodes(), exclude or [])
    body = placement_body(_model_id(call, model), shards, meta, min_nodes, excluded)
    order = Order(body, snapshot.state)
    if call.options.get("dry_run"):
        return _show_plan(call, order)
    return _carry_out(call, order, wait)


@dataclass(frozen=True)
class Order:
    """What to place, and the state it was decided on."""

    body: Document
    state: Document

    @property
    def model_id(self) -> str:
        return str(self.body["model_id"])


def _choice(option: str, typed: str, choices: Sequence[str]) -> str:
    for choice in choices:
        if typed.casefold() == choice.casefold():
            return choice
    raise UsageMistake(f"{option} {typed}: choose one of {', '.join(choices)}")


def _excluded_ids(nodes: Sequence[Document], typed: Sequence[str]) -> list[str]:
    from skulkctl.views.nodes import find_node

    return [str(find_node(nodes, name)["id"]) for name in typed]


def _model_id(call: Invocation, typed: str) -> str:
    """The id in full. One with a slash goes to the daemon as it is: it may know more."""
    from skulkctl.views.models import catalogue_ids, find_model

    if "/" in typed:
        return typed
    # What has files here is meant rather than what is only in the catalogue.
    here = catalogue_ids(call.client.get("/models", status="downloaded"))
    everything = catalogue_ids(call.client.get("/models"))
    found = find_model(here, typed) or find_model(everything, typed)
    if found is None:
        raise _unknown_model(typed, everything)
    return found


def _unknown_model(typed: str, ids: Sequence[str]) -> CliError:
    from skulkctl.views.models import nearest

    near = [f"did you mean {model_id}?" for model_id in nearest(ids, typed)]
    return NotFound(
        f"no model named {typed}",
        hints=[*near, "skulkctl models", "bring one:  skulkctl model import PATH --id ORG/NAME"],
    )


def _show_plan(call: Invocation, order: Order) -> int:
    from skulkctl.views.placement import choose_preview, outcome, plan_screen, planned_instance

    query = [("model_id", order.model_id)]
    query += [("excluded_node_ids", str(n)) for n in _listed(order.body["excluded_nodes"])]
    try:
        answer = call.client.get(f"/instance/previews?{urlencode(query)}")
    except NotFound as error:
        # Without such an endpoint "previews" is taken for the id of an instance.
        raise RouteMissing(
            "this daemon cannot plan without placing",
            hints=[f"place it:  skulkctl place {order.model_id}"],
            details=error.details,
        ) from error
    except Refused as error:
        raise _refused(order, list(error.why), error) from error
    preview = choose_preview(answer, order.body)
    if preview is None:
        raise _refused(order, _preview_errors(answer, order.body))
    planned = planned_instance(order.state, preview)
    document, screen = outcome("would place", planned), plan_screen(planned)
    write(call.style.single("Placement", document, order.model_id, lambda _: screen))
    return ExitCode.DONE


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []


def _preview_errors(answer: object, body: Document) -> list[str]:
    from skulkctl.views.placement import matching_previews
    from skulkctl.views.read import text

    said = [text(preview, "error") for preview in matching_previews(answer, body)]
    none = f"no placement on at least {body['min_nodes']} nodes"
    return [line for line in said if line] or [none]


def _carry_out(call: Invocation, order: Order, wait: bool) -> int:
    from skulkctl.confirm import protect
    from skulkctl.views.instances import instance_items, short_instance
    from skulkctl.watch import Goal, wait_for

    protect(call, f"place {order.model_id}")
    instance_id = _ask_daemon(call, order)
    twins = [i for i in instance_items(order.state) if i["modelId"] == order.model_id]
    if twins:
        shown = ", ".join(short_instance(twin["id"]) for twin in twins)
        call.talk.note(f"{order.model_id} was placed already ({shown}); this is another one")
    if instance_id is None:
        call.talk.note(f"accepted; no new instance of {order.model_id} is to be seen yet")
        call.talk.hint("skulkctl instances")
        _report(call, {"id": None, "modelId": order.model_id, "nodes": []}, "placing")
    elif wait:
        item = wait_for(call, Goal(instance_id, order.model_id))
        _report(call, item or {}, "ready")
    else:
        _report(call, _look_up(call, instance_id, order), "placing")
        call.talk.hint(f"skulkctl wait {short_instance(instance_id)}")
    return ExitCode.DONE


def _ask_daemon(call: Invocation, order: Order) -> str | None:
    """The new instance's id; None when a server that does not tell shows none either."""
    import json

    from skulkctl.answers import read_json
    from skulkctl.views.read import text

    client = call.client
    client.timeout_s = call.timeout_s(PLAN_S)
    answer = client.send("POST", "/place_instance", body=json.dumps(order.body).encode())
    if not answer.ok:
        raise _placement_error(call, order, answer)
    return text(read_json(answer), "instance_id") or _wait_until_seen(call, order)


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


def _look_up(call: Invocation, instance_id: str, order: Order) -> Document:
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
        return _refused(order, lines, error_of(answer))
    if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
        error = _refused(order, lines, error_of(answer), "yet")
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
    return _unknown_model(order.model_id, ids)


def _refused(
    order: Order, lines: Sequence[str], said: CliError | None = None, yet: str = ""
) -> Refused:
    from skulkctl.views.instances import instance_items
    from skulkctl.views.placement import refusal_lines, room_hint

    why, hints = refusal_lines(lines, order.state)
    if any(_GIGABYTES.search(line) for line in why):
        hints = hints or ["smaller models:  skulkctl models --sort size"]
        room = room_hint(instance_items(order.state))
        hints = [*hints, room] if room else hints
    return Refused(
        f"cannot place {order.model_id} {yet}".rstrip(),
        *why,
        hints=hints,
        details=said.details if said else (),
    )


def _report(call: Invocation, item: Document, action: str) -> None:
    from skulkctl.views.placement import outcome, placed_line

    document, line = outcome(action, item), placed_line(item, action)
    write(call.style.single("Placement", document, str(item["id"] or ""), lambda _: line))

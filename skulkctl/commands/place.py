"""`skulkctl place`: let the planner place a model, and watch it become ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import Refused
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import CONFIRM, FORMAT, REACH, verb
from skulkctl.placing import (
    HOW,
    WHERE,
    Order,
    ask_daemon,
    create_exactly,
    fetch_previews,
    listed,
    look_up,
    make_order,
    refused,
    why_not,
)
from skulkctl.stdout import write

if TYPE_CHECKING:
    from skulkctl.views.read import Document

app = new_app()

EXAMPLES = """
  skulkctl place skulk/SmolLM2-135M-Instruct --wait
  skulkctl place SmolLM2 --wait --timeout 2m      the only id that begins like this
  skulkctl place mlx-community/Qwen3-0.6B-4bit --min-nodes 2 --sharding Tensor
  skulkctl place mlx-community/Qwen3-0.6B-4bit --exclude kite3 --dry-run
  skulkctl place SmolLM2 --only kite1 --only kite2 --wait
  skulkctl place SmolLM2 --plan plan-3fa9c1d20b7e   exactly what a dry run has shown, or nothing
"""


@verb(app, "place", HOW, WHERE, REACH, FORMAT, CONFIRM, examples=EXAMPLES)
def place(
    call: Invocation,
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Id, its part after the slash, or a prefix.")
    ],
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when it is ready; progress goes to stderr.")
    ] = False,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="PLAN", help="Do what a dry run of this id has shown."),
    ] = None,
) -> int:
    """Place a model: the daemon's planner chooses the nodes and loads it there.

    Returns as soon as the daemon has accepted. With --wait it returns when the model is ready:
    exit 1 when a runner fails, 6 when --timeout (10m if not given) is over and loading goes on.
    Exit 4 means that the planner refused and nothing changed, 3 that nobody knows the model.
    A dry run prints a plan and its id; with --plan exactly that is done, or exit 4 when the
    cluster has changed so that it is no longer what would be planned.
    """
    order = make_order(call, model)
    if call.options.get("dry_run"):
        return _show_plan(call, order, plan)
    return _carry_out(call, order, wait, plan)


def _show_plan(call: Invocation, order: Order, plan: str | None) -> int:
    from skulkctl.views.placement import choose_preview, outcome, plan_screen, planned_instance

    answer = fetch_previews(call, order)
    if plan is not None:
        preview = _planned_before(order, answer, plan)
    else:
        found = choose_preview(answer, order.body)
        if found is None:
            raise _no_plan(call, order, answer)
        preview = found
    planned = planned_instance(order.state, preview)
    document, screen = outcome("would place", planned), plan_screen(planned, call.style.room)
    write(call.style.single("Placement", document, str(planned["planId"]), lambda _: screen))
    call.talk.hint(f"do exactly this:  {_command(order, str(planned['planId']))}")
    return ExitCode.DONE


def _command(order: Order, plan_id: str) -> str:
    """What to type to carry the plan out."""
    from skulkctl.views.nodes import node_name

    only = listed(order.body.get("only_nodes"))
    excluded = [] if only else listed(order.body["excluded_nodes"])
    named = [f" --only {node_name(order.state, str(node))}" for node in only]
    named += [f" --exclude {node_name(order.state, str(node))}" for node in excluded]
    return f"skulkctl place {order.model_id}{''.join(named)} --plan {plan_id}"


def _planned_before(order: Order, answer: object, plan: str) -> Document:
    """The preview of this plan id. Raises Refused when the planner would do something else now."""
    from skulkctl.views.placement import preview_of_plan

    preview = preview_of_plan(order.state, answer, plan)
    if preview is None:
        raise Refused(
            f"cannot carry out {plan}",
            "the cluster has changed since, or the plan was made with other nodes left out",
            hints=[f"look again:  skulkctl place {order.model_id} --dry-run"],
        )
    return preview


def _no_plan(call: Invocation, order: Order, answer: object) -> Refused:
    """The reason among the previews, or, when fewer nodes would do, the planner's own."""
    from skulkctl.views.placement import matching_previews
    from skulkctl.views.read import text

    said = [text(preview, "error") for preview in matching_previews(answer, order.body)]
    lines = [line for errors in said if errors for line in errors.splitlines()]
    return refused(order, lines) if lines else why_not(call, order)


def _carry_out(call: Invocation, order: Order, wait: bool, plan: str | None) -> int:
    from skulkctl.confirm import protect
    from skulkctl.views.instances import instance_items, short_instance
    from skulkctl.watch import Goal, wait_for

    protect(call, f"place {order.model_id}")
    instance_id: str | None
    if plan is None:
        instance_id = ask_daemon(call, order)
    else:
        preview = _planned_before(order, fetch_previews(call, order), plan)
        instance_id = create_exactly(call, order, preview)
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
        _report(call, look_up(call, instance_id, order), "placing")
        call.talk.hint(f"skulkctl wait {short_instance(instance_id)}")
    return ExitCode.DONE


def _report(call: Invocation, item: Document, action: str) -> None:
    from skulkctl.views.placement import outcome, placed_line

    document, line = outcome(action, item), placed_line(item, action)
    write(call.style.single("Placement", document, str(item["id"] or ""), lambda _: line))

"""`skulkctl place`: let the planner place a model, and wait until it is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import Refused, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import CONFIRM, FORMAT, REACH, verb
from skulkctl.placement.orders import (
    HOW,
    WHERE,
    Order,
    ask_daemon,
    create_exactly,
    fetch_previews,
    look_up,
    make_order,
    refused,
    why_not,
)
from skulkctl.stdout import write

if TYPE_CHECKING:
    from skulkctl.placement.instances import InstanceItem
    from skulkctl.placement.plans import PlacedItem
    from skulkd.wire.placement import PlacementPreview, PlacementPreviewResponse

app = new_app()

EXAMPLES = """
  skulkctl place skulk/SmolLM2-135M-Instruct --wait
  skulkctl place SmolLM2 --wait --timeout 2m      the only id that begins like this
  skulkctl place mlx-community/Qwen3-0.6B-4bit --min-nodes 2 --sharding Tensor
  skulkctl place mlx-community/Qwen3-0.6B-4bit --exclude kite3 --dry-run
  skulkctl place SmolLM2 --only kite1 --only kite2 --wait
  skulkctl place SmolLM2 --ensure --wait          for cron: places it only when it is missing
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
    ensure: Annotated[
        bool, typer.Option("--ensure", help="Place it only when it is not placed already.")
    ] = False,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="PLAN", help="Execute this dry-run plan exactly."),
    ] = None,
) -> int:
    """Place a model: the daemon's planner chooses the nodes and loads it there.

    Returns as soon as the daemon has accepted. With --wait it returns when the model is ready:
    exit 1 when a runner fails, 6 when --timeout (10m if not given) is over and loading goes on.
    Exit 4 means that the planner refused and nothing changed, 3 that nobody knows the model.
    A dry run prints a plan and its id; with --plan exactly that is done, or exit 4 when the
    cluster has changed so that it is no longer what would be planned.
    With --ensure nothing is placed when an instance of the model exists, wherever it is; exit 0
    then as well, so that cron can repeat it, and exit 1 when that instance has failed.
    """
    if ensure and plan is not None:
        raise UsageMistake("--ensure and --plan cannot be combined")
    order = make_order(call, model)
    if ensure and (there := _find_placed(call, order)) is not None:
        return _keep(call, there, wait)
    if call.options.get("dry_run"):
        return _show_plan(call, order, plan)
    return _carry_out(call, order, wait, plan, ensure=ensure)


def _find_placed(call: Invocation, order: Order) -> InstanceItem | None:
    """The best instance of the model, or one that waits for a node. Raises CliError if failed."""
    from skulkctl.placement.instances import instance_items, waiting_items
    from skulkctl.placement.placed import choose_placed

    model_id = order.model_id
    mine = [item for item in instance_items(order.state) if item["modelId"] == model_id]
    if mine:
        return choose_placed(mine, model_id)
    waiting = waiting_items(call.daemon.placements())
    return next((item for item in waiting if item["modelId"] == model_id), None)


def _keep(call: Invocation, item: InstanceItem, wait: bool) -> int:
    """Nothing is placed; with --wait return when the instance that is there is ready."""
    from skulkctl.placement.waiting import Goal, wait_for

    if call.options.get("dry_run"):
        _report(call, item, "would keep")
        return ExitCode.DONE
    if wait:
        goal = Goal(item["id"], item["modelId"], fail_on=frozenset({"failed"}))
        item = wait_for(call, goal) or item
    _report(call, item, "already placed")
    return ExitCode.DONE


def _show_plan(call: Invocation, order: Order, plan: str | None) -> int:
    from skulkctl.placement.plans import choose_preview, outcome, plan_screen, planned

    answer = fetch_previews(call, order)
    if plan is not None:
        preview = _planned_before(order, answer, plan)
    else:
        found = choose_preview(answer, order.params)
        if found is None:
            raise _no_plan(call, order, answer)
        preview = found
    if preview.instance is None:
        raise _no_plan(call, order, answer)
    _note_copies(call, order)
    item = planned(order.state, preview, preview.instance)
    document, screen = outcome("would place", item), plan_screen(item, call.style.room)
    write(call.style.single("Placement", document, item["planId"], lambda _: screen))
    call.talk.hint(f"do exactly this:  {_command(order, item['planId'])}")
    return ExitCode.DONE


def _command(order: Order, plan_id: str) -> str:
    """What to type to carry the plan out."""
    only, state = order.params.only_nodes, order.state
    excluded = [] if only else order.params.excluded_nodes
    named = [f" --only {state.node_name(node)}" for node in only]
    named += [f" --exclude {state.node_name(node)}" for node in excluded]
    return f"skulkctl place {order.model_id}{''.join(named)} --plan {plan_id}"


def _planned_before(order: Order, answer: PlacementPreviewResponse, plan: str) -> PlacementPreview:
    """The preview of this plan id. Raises Refused when the planner would do something else now."""
    from skulkctl.placement.plans import preview_of_plan

    preview = preview_of_plan(order.state, answer, plan)
    if preview is None:
        raise Refused(
            f"cannot carry out {plan}",
            "the cluster has changed since, or the plan was made with other nodes left out",
            hints=[f"make a new plan:  skulkctl place {order.model_id} --dry-run"],
        )
    return preview


def _no_plan(call: Invocation, order: Order, answer: PlacementPreviewResponse) -> Refused:
    """The reason among the previews, or, when fewer nodes would do, the planner's own."""
    from skulkctl.placement.plans import matching_previews

    errors = [preview.error for preview in matching_previews(answer, order.params)]
    lines = [line for error in errors if error for line in error.splitlines()]
    return refused(order, lines) if lines else why_not(call, order)


def _note_copies(call: Invocation, order: Order) -> None:
    from skulkctl.placement.instances import instance_items, short_instance

    copies = [i for i in instance_items(order.state) if i["modelId"] == order.model_id]
    if copies:
        shown = ", ".join(short_instance(copy["id"]) for copy in copies)
        call.talk.note(
            f"{order.model_id} is placed already ({shown}); this places another instance"
            " (--ensure keeps the one that is there)"
        )


def _carry_out(
    call: Invocation, order: Order, wait: bool, plan: str | None, *, ensure: bool
) -> int:
    from skulkctl.confirm import protect
    from skulkctl.placement.instances import short_instance
    from skulkctl.placement.waiting import Goal, wait_for

    _note_copies(call, order)
    protect(call, f"place {order.model_id}")
    instance_id: str | None
    if plan is None:
        instance_id = ask_daemon(call, order, ensure=ensure)
    else:
        preview = _planned_before(order, fetch_previews(call, order), plan)
        instance_id = create_exactly(call, order, preview)
    if instance_id is None:
        call.talk.note(f"accepted; no new instance of {order.model_id} is listed yet")
        call.talk.hint("skulkctl instances")
        _report(call, {"id": None, "modelId": order.model_id, "nodes": []}, "placing")
    elif wait:
        item = wait_for(call, Goal(instance_id, order.model_id))
        _report(call, item or look_up(call, instance_id, order), "ready")
    else:
        _report(call, look_up(call, instance_id, order), "placing")
        call.talk.hint(f"skulkctl wait {short_instance(instance_id)}")
    return ExitCode.DONE


def _report(call: Invocation, item: InstanceItem | PlacedItem, action: str) -> None:
    from skulkctl.placement.plans import outcome, placed_line

    document, line = outcome(action, item), placed_line(item, action)
    write(call.style.single("Placement", document, item["id"] or "", lambda _: line))

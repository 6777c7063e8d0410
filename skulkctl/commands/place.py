"""`skulkctl place`: let the planner place a model, and wait until it is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Confirmation, Invocation, Output, Reach, new_app, values, verb
from skulkctl.errors import Refused, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write
from skulkctl.placement.orders import (
    Division,
    Order,
    Where,
    ask_daemon,
    create_exactly,
    fetch_previews,
    look_up,
    make_order,
    refused,
    why_not,
)

if TYPE_CHECKING:
    from skulkctl.placement.instances import InstanceItem
    from skulkctl.placement.plans import PlacedItem
    from skulkd.wire.placement import PlacementPreview, PlacementPreviewResponse

app = new_app()

EXAMPLES = """
  skulkctl place skulk/SmolLM2-135M-Instruct --wait
  skulkctl place SmolLM2 --wait --timeout 2m      a unique prefix of the id is enough
  skulkctl place mlx-community/Qwen3-0.6B-4bit --min-nodes 2 --sharding Tensor
  skulkctl place mlx-community/Qwen3-0.6B-4bit --exclude kite3 --dry-run
  skulkctl place SmolLM2 --only kite1 --only kite2 --wait
  skulkctl place SmolLM2 --ensure --wait          for cron: place it only if it is missing
  skulkctl place SmolLM2 --plan plan-3fa9c1d20b7e   execute exactly this dry-run plan
"""


@verb(app, "place", Division, Where, Reach, Output, Confirmation, examples=EXAMPLES)
def place(
    call: Invocation,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            autocompletion=values.models,
            help="Model id, the part after the slash, or a unique prefix.",
        ),
    ],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the model is ready; progress goes to stderr.")
    ] = False,
    ensure: Annotated[
        bool, typer.Option("--ensure", help="Place the model only if it is not placed yet.")
    ] = False,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="PLAN", help="Execute this dry-run plan exactly."),
    ] = None,
) -> int:
    """Place a model: the daemon's planner chooses the nodes and loads it there.

    Returns when the daemon has accepted the request. With --wait, returns when the model is
    ready: exit 1 if a runner fails, exit 6 if --timeout (default: 10m) passes while the model
    still loads. Exit 4: the planner refused and nothing changed. Exit 3: the model is unknown.
    A dry run prints a plan and its id. --plan executes exactly that plan, or exits 4 if the
    cluster has changed and the plan is no longer valid.
    With --ensure, nothing is placed if an instance of the model exists on any node: exit 0, so
    that cron can repeat it, or exit 1 if that instance has failed. An instance that was loaded
    on demand then stays until it is deleted.
    """
    if ensure and plan is not None:
        raise UsageMistake("--ensure and --plan cannot be combined")
    order = make_order(call, model)
    if ensure and (there := _find_placed(call, order)) is not None:
        _make_permanent(call, order, there)
        return _keep(call, there, wait)
    if call.dry_run:
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


def _make_permanent(call: Invocation, order: Order, item: InstanceItem) -> None:
    """An instance that a request has loaded would be unloaded when idle; now it stays."""
    rows = call.daemon.placements().placements
    loaded = [row for row in rows if row.record.on_demand and row.instance_id == item["id"]]
    if loaded and not call.dry_run:
        ask_daemon(call, order, ensure=True)
        call.messages.note("it was loaded on demand; from now on it stays until it is deleted")


def _keep(call: Invocation, item: InstanceItem, wait: bool) -> int:
    """Nothing is placed; with --wait return when the instance that is there is ready."""
    from skulkctl.placement.waiting import Goal, wait_for

    if call.dry_run:
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
    call.messages.hint(f"execute this plan:  {_command(order, item['planId'])}")
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
            f"cannot execute {plan}",
            "the cluster has changed, or the plan was made with other --exclude or --only options",
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
        call.messages.note(
            f"{order.model_id} is placed already ({shown}); this places another instance"
            " (--ensure keeps the one that is there)"
        )


def _carry_out(
    call: Invocation, order: Order, wait: bool, plan: str | None, *, ensure: bool
) -> int:
    from skulkctl.cli.confirm import protect
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
        call.messages.note(f"accepted; no new instance of {order.model_id} is listed yet")
        call.messages.hint("skulkctl instances")
        _report(call, {"id": None, "modelId": order.model_id, "nodes": []}, "placing")
    elif wait:
        item = wait_for(call, Goal(instance_id, order.model_id))
        _report(call, item or look_up(call, instance_id, order), "ready")
    else:
        _report(call, look_up(call, instance_id, order), "placing")
        call.messages.hint(f"skulkctl wait {short_instance(instance_id)}")
    return ExitCode.DONE


def _report(call: Invocation, item: InstanceItem | PlacedItem, action: str) -> None:
    from skulkctl.placement.plans import outcome, placed_line

    document, line = outcome(action, item), placed_line(item, action)
    write(call.style.single("Placement", document, item["id"] or "", lambda _: line))

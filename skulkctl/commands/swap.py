"""`skulkctl swap`: replace one model with another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Confirmation, Invocation, Output, Reach, new_app, values, verb
from skulkctl.errors import CliError, NotFound, Refused, RouteMissing
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write
from skulkctl.placement.orders import (
    Division,
    Order,
    Where,
    ask_daemon,
    fetch_previews,
    look_up,
    make_order,
)

if TYPE_CHECKING:
    from skulkctl.placement.instances import InstanceItem
    from skulkctl.placement.plans import PlacedItem

app = new_app()

EXAMPLES = """
  skulkctl swap 7f3c2a10 mlx-community/Qwen3-8B-4bit --wait
  skulkctl swap Qwen3-8B-8bit Qwen3-8B-4bit --yes --wait
  skulkctl swap 7f3c2a10 SmolLM2 --dry-run
"""


@verb(app, "swap", Division, Where, Reach, Output, Confirmation, examples=EXAMPLES)
def swap(
    call: Invocation,
    old: Annotated[
        str,
        typer.Argument(
            metavar="OLD",
            autocompletion=values.instances,
            help="Instance id, a prefix of 4 or more characters, or its model.",
        ),
    ],
    new: Annotated[
        str,
        typer.Argument(metavar="NEW", autocompletion=values.models, help="Model to place instead."),
    ],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the new model is ready.")
    ] = False,
) -> int:
    """Place a model and unload another.

    If both models fit, the new one is placed first, and with --wait the old one serves until the
    new one is ready. Otherwise the old one is unloaded first, and no model serves until the new
    one is ready. Asks for confirmation.
    """
    from skulkctl.cli.confirm import Danger, protect
    from skulkctl.placement.instances import find_instance, instance_items, short_instance

    order = make_order(call, new)
    item = find_instance(instance_items(order.state), old, call.messages.note)
    name = f"{item['modelId']} ({short_instance(item['id'])})"
    beside = _fits_beside(call, order)
    how = (
        f"{order.model_id} fits beside it and is placed first"
        if beside
        else f"{order.model_id} does not fit beside it: {name} is unloaded first, no model serves"
    )
    if call.dry_run:
        _report(call, item, order, "would swap")
        call.messages.note(how)
        return ExitCode.DONE
    what = f"swap {name} for {order.model_id}"
    protect(call, what, Danger(what, why=(how, f"{item['tasks'] or 0} requests run on {name}")))
    placed = _new_first(call, order, item, wait) if beside else _old_first(call, order, item, wait)
    _report(call, placed, order, "ready" if wait else "placing")
    return ExitCode.DONE


def _fits_beside(call: Invocation, order: Order) -> bool:
    """Whether the planner would place it as things are. A daemon that cannot say: no."""
    from skulkctl.placement.plans import choose_preview

    try:
        return choose_preview(fetch_previews(call, order), order.params) is not None
    except (RouteMissing, Refused):
        return False


def _new_first(
    call: Invocation, order: Order, old: InstanceItem, wait: bool
) -> InstanceItem | PlacedItem:
    placed = _place(call, order, wait)
    _delete(call, old)
    return placed


def _old_first(
    call: Invocation, order: Order, old: InstanceItem, wait: bool
) -> InstanceItem | PlacedItem:
    from skulkctl.placement.waiting import Goal, wait_for

    _delete(call, old)
    wait_for(call, Goal(old["id"], old["modelId"], "deleted", frozenset()))
    try:
        return _place(call, order, wait)
    except CliError as error:
        error.hints = (*error.hints, f"restore the old model:  skulkctl place {old['modelId']}")
        raise


def _place(call: Invocation, order: Order, wait: bool) -> InstanceItem | PlacedItem:
    from skulkctl.placement.waiting import Goal, wait_for

    instance_id = ask_daemon(call, order)
    if instance_id is None:
        raise CliError(
            f"{order.model_id} was accepted, but no new instance is listed",
            hints=["skulkctl instances"],
        )
    if not wait:
        return look_up(call, instance_id, order)
    return wait_for(call, Goal(instance_id, order.model_id)) or look_up(call, instance_id, order)


def _delete(call: Invocation, old: InstanceItem) -> None:
    try:
        call.daemon.delete(old["id"])
    except RouteMissing:
        raise
    except NotFound:
        call.messages.note(f"{old['modelId']} was already unloaded")


def _report(call: Invocation, item: InstanceItem | PlacedItem, order: Order, action: str) -> None:
    from skulkctl.placement.plans import outcome, placed_line

    line = (
        f"would replace {placed_line(item, '').strip()} by {order.model_id}\n"
        if action == "would swap"
        else placed_line(item, action)
    )
    document = {**outcome(action, item), "newModelId": order.model_id}
    write(call.style.single("Swap", document, item["id"] or "", lambda _: line))

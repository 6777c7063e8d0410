"""`skulkctl preview`: every way to place a model, with its arithmetic, or why it does not work."""

from __future__ import annotations

from typing import Annotated

import typer

from skulkctl.command import new_app
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, TABLE, verb
from skulkctl.placement.orders import WHERE, fetch_previews, make_order
from skulkctl.stdout import write

app = new_app()

EXAMPLES = """
  skulkctl preview mlx-community/Qwen3-8B-4bit
  skulkctl preview SmolLM2 --exclude kite3
  skulkctl preview SmolLM2 --only kite1 --only kite2 -o json
  skulkctl preview SmolLM2 -o wide --columns sharding,link,count,reason
"""


@verb(app, "preview", WHERE, REACH, FORMAT, TABLE, examples=EXAMPLES)
def preview(
    call: Invocation,
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Id, its part after the slash, or a prefix.")
    ],
) -> int:
    """Ask the planner where a model may go; nothing is placed.

    One row for each sharding, kind of link and number of nodes that works, then what each node
    would have to give: weights, overhead, room for a conversation and a floor, against what is
    usable. What does not work is listed with its reason.

    MODEL may be any ORG/NAME: one without a card gets it from its config.json in the store, in the
    staging area or on the hub. Its files need not be here yet.
    """
    from skulkctl.placement.previews import PREVIEWS, preview_hints, preview_items, preview_screen

    order = make_order(call, model)
    items = preview_items(order.state, fetch_previews(call, order, need_files=False))
    shown = call.style.rows(PREVIEWS, items)
    is_plain = call.format == "table" and not call.options.get("columns")
    write(preview_screen(items, shown, call.style.room) if is_plain and items else shown)
    if any(item["fits"] for item in items) and not _has_files(call, order.model_id):
        call.talk.note(f"no node has the files of {order.model_id} yet")
        call.talk.hint(f"download them first:  skulkctl model pull {order.model_id}")
    for hint in preview_hints(items) if items else [PREVIEWS.empty_hint]:
        call.talk.hint(hint)
    return ExitCode.DONE


def _has_files(call: Invocation, model_id: str) -> bool:
    """Whether a node has them, or a store that would get them."""
    from skulkctl.storage.pulling import has_store

    present = [model.id for model in call.daemon.models(downloaded=True).data]
    return model_id in present or has_store(call)

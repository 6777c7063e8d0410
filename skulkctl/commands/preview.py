"""`skulkctl preview`: every way to place a model, with its arithmetic, or why it does not work."""

from __future__ import annotations

from typing import Annotated

import typer

from skulkctl.command import new_app
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, TABLE, verb
from skulkctl.placing import WHERE, fetch_previews, make_order
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
    """
    from skulkctl.views.previews import PREVIEWS, preview_hints, preview_items, preview_screen

    order = make_order(call, model)
    items = preview_items(order.state, fetch_previews(call, order))
    shown = call.style.rows(PREVIEWS, items)
    is_plain = call.format == "table" and not call.options.get("columns")
    write(preview_screen(items, shown, call.style.room) if is_plain and items else shown)
    for hint in preview_hints(items) if items else [PREVIEWS.empty_hint]:
        call.talk.hint(hint)
    return ExitCode.DONE

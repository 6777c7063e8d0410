"""`skulkctl storage`: what models cost on the disks of the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, TABLE, verb
from skulkctl.stdout import write

if TYPE_CHECKING:
    from skulkctl.output import Style
    from skulkctl.storage.rows import StorageItem

app = new_app()

EXAMPLES = """
  skulkctl storage
  skulkctl storage --all-nodes
  skulkctl storage --all-nodes --watch
  skulkctl storage --all-nodes -o json | jq '.items[] | select(.diskFreeBytes < 2e10).name'
"""


@verb(app, "storage", REACH, FORMAT, TABLE, examples=EXAMPLES)
def storage(
    call: Invocation,
    all_nodes: Annotated[
        bool, typer.Option("--all-nodes", "-A", help="Every node, not only the one that answers.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on and print a line for every change.")
    ] = False,
) -> int:
    """Show staged models, what uses them, what eviction would delete, and how much disk is left.

    KEEP is the grace budget of staging_keep_recent_gb, EVICT what the next eviction would free
    beyond it. A node that does not answer stays in the list as NO ANSWER and the exit code is 8.
    """
    from skulkctl.storage.rows import COPIES, STORAGE, copies_of, total_of

    if watch:
        _watch(call, all_nodes)
    items = _fetch(call, all_nodes)
    if all_nodes and not call.daemon.tells_all_storage():
        call.talk.note("this server knows only its own storage; ask each node with --endpoint")
    if call.format in ("table", "wide"):
        rows = [*items, *([total_of(items)] if len(items) > 1 else [])]
        call.show_rows(STORAGE, rows)
        copies = copies_of(items)
        if copies and not call.style.columns:
            write("\n" + _plain_style(call).rows(COPIES, copies))
    else:
        call.show_rows(STORAGE, items)
    silent = [item for item in items if item["error"]]
    for item in silent:
        call.talk.warning(f"{item['name']}: no answer: {item['error']}")
    return ExitCode.PARTIAL if silent else ExitCode.DONE


def _fetch(call: Invocation, all_nodes: bool) -> list[StorageItem]:
    """The storage of the node that answers, or of all nodes."""
    from skulkctl.storage.rows import storage_items

    state = call.daemon.state()
    items = storage_items(call.daemon.storage(local=not all_nodes), state)
    return items if all_nodes else items[:1]


def _plain_style(call: Invocation) -> Style:
    """The second table has columns of its own, so --sort is for the first."""
    from dataclasses import replace

    return replace(call.style, sort=None, columns=None)


def _watch(call: Invocation, all_nodes: bool) -> None:
    from skulkctl.follow import watch_rows
    from skulkctl.storage.rows import COPIES, copies_of

    notable = ("state", "complete", "inUseBy")
    watch_rows(call, COPIES, lambda: copies_of(_fetch(call, all_nodes)), notable)

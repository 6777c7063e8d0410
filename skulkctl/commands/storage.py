"""`skulkctl storage`: disk usage of models, per node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Invocation, Output, Reach, Table, new_app, verb
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

if TYPE_CHECKING:
    from skulkctl.output.formats import Style
    from skulkctl.storage.rows import StorageItem

app = new_app()

EXAMPLES = """
  skulkctl storage
  skulkctl storage --all-nodes
  skulkctl storage --all-nodes --watch
  skulkctl storage --all-nodes -o json | jq '.items[] | select(.diskFreeBytes < 2e10).name'
"""


@verb(app, "storage", Reach, Output, Table, examples=EXAMPLES)
def storage(
    call: Invocation,
    all_nodes: Annotated[
        bool,
        typer.Option(
            "--all-nodes", "-A", help="Show every node, not only the one that skulkctl connects to."
        ),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep running and print a line for every change.")
    ] = False,
) -> int:
    """Show staged models, what uses them, what eviction would delete, and the free disk space.

    KEEP is the space that eviction leaves to recently used models (staging_keep_recent_gb), EVICT
    the space that the next eviction would free. A node that does not respond is listed as
    NO ANSWER, and the exit code is 8.
    """
    from skulkctl.storage.rows import COPIES, STORAGE, copies_of, total_of

    if watch:
        _watch(call, all_nodes)
    items = _fetch(call, all_nodes)
    if all_nodes and not call.daemon.tells_all_storage():
        call.messages.note("this server reports only its own storage; use --endpoint for each node")
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
        call.messages.warning(f"{item['name']}: no answer: {item['error']}")
    return ExitCode.PARTIAL if silent else ExitCode.DONE


def _fetch(call: Invocation, all_nodes: bool) -> list[StorageItem]:
    """The storage of the node that answers, or of all nodes."""
    from skulkctl.storage.rows import storage_items

    state = call.daemon.state()
    items = storage_items(call.daemon.storage(local=not all_nodes), state)
    return items if all_nodes else items[:1]


def _plain_style(call: Invocation) -> Style:
    """The second table has columns of its own, so --sort is for the first."""

    return call.style._replace(sort=None, columns=None)


def _watch(call: Invocation, all_nodes: bool) -> None:
    from skulkctl.output.watching import watch_rows
    from skulkctl.storage.rows import COPIES, copies_of

    notable = ("state", "complete", "inUseBy")
    watch_rows(call, COPIES, lambda: copies_of(_fetch(call, all_nodes)), notable)

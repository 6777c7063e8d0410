"""`skulkctl storage`: what models cost on the disks of the nodes."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, TABLE, verb
from skulkctl.stdout import write

if TYPE_CHECKING:
    from skulkctl.client import Client
    from skulkctl.output import Style
    from skulkctl.views.read import Document

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
    from skulkctl.views.storage import COPIES, STORAGE, copies_of, total_of

    if watch:
        _watch(call, all_nodes)
    items = fetch_storage(call, call.client, all_nodes)
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


def fetch_storage(call: Invocation, client: Client, all_nodes: bool) -> list[dict[str, object]]:
    """The storage of one node or all; a server without our endpoint tells only of itself."""
    from skulkctl.fetch import fetch_state
    from skulkctl.views.nodes import node_name
    from skulkctl.views.read import text
    from skulkctl.views.storage import local_item, storage_items

    snapshot = fetch_state(client)
    answer = client.get_optional("/store/storage/cluster")
    if answer is None:
        summary = client.get("/store/storage")
        node_id = text(summary, "nodeId") or ""
        answer = local_item(summary, node_name(snapshot.state, node_id))
        if all_nodes:
            call.talk.note("this server knows only its own storage; ask each node with --endpoint")
    now: datetime = snapshot.now
    items = storage_items(answer, now, snapshot.state)
    return items if all_nodes else items[:1]


def _plain_style(call: Invocation) -> Style:
    """The second table has columns of its own, so --sort is for the first."""
    from dataclasses import replace

    return replace(call.style, sort=None, columns=None)


def _watch(call: Invocation, all_nodes: bool) -> None:
    from skulkctl.client import DEFAULT_TIMEOUT_S, Client
    from skulkctl.follow import watch_rows
    from skulkctl.views.storage import COPIES, copies_of

    def load() -> list[Document]:
        client = Client(call.target, call.timeout_s(DEFAULT_TIMEOUT_S), call.talk.detail)
        return copies_of(fetch_storage(call, client, all_nodes))

    watch_rows(call, COPIES, load, ("state", "complete", "inUseBy"))

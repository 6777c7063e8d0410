"""`skulkctl store`: what the shared model store has."""

from __future__ import annotations

from skulkctl.command import new_app
from skulkctl.daemon.codes import STORE_NOT_CONFIGURED, STORE_UNREACHABLE
from skulkctl.errors import CliError, Refused
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, TABLE, verb

app = new_app()

EXAMPLES = """
  skulkctl store
  skulkctl store -o json | jq '[.items[].sizeBytes] | add'
"""


@verb(app, "store", REACH, FORMAT, TABLE, examples=EXAMPLES)
def store(call: Invocation) -> int:
    """List the models of the shared store, its downloads, and its free space.

    Add models with skulkctl model pull ORG/NAME, or with an import on the store host.
    """
    from skulkctl.storage.store import STORE, store_items
    from skulkctl.units import size_text

    try:
        health = call.daemon.store_health()
    except CliError as error:
        raise not_usable(error) from error
    items = store_items(call.daemon.store_registry(), call.daemon.store_downloads())
    call.show_rows(STORE, items)
    free, total = size_text(health.free_bytes), size_text(health.total_bytes)
    call.talk.note(f"{health.store_path}: {free} free of {total}")
    return ExitCode.DONE


def not_usable(error: CliError) -> CliError:
    """The daemon has no store, or cannot reach it: both need the operator."""
    if error.code == STORE_NOT_CONFIGURED:
        return Refused(
            "this cluster has no model store",
            "skulk.yaml has no model_store section, or it is switched off",
            hints=["skulkctl config set model_store.store_host HOST", "see docs/storage.md"],
            details=error.details,
        )
    if error.code == STORE_UNREACHABLE:
        return CliError(
            "the model store cannot be reached",
            *error.why,
            hints=["is skulkd running on the store host?  skulkctl nodes"],
            details=error.details,
        )
    return error

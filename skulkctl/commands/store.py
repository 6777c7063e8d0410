"""`skulkctl store`: what the shared model store has."""

from __future__ import annotations

from skulkctl.cli import Invocation, Output, Reach, Table, new_app, verb
from skulkctl.daemon.codes import STORE_NOT_CONFIGURED, STORE_UNREACHABLE
from skulkctl.errors import CliError, Refused
from skulkctl.exits import ExitCode

app = new_app()

EXAMPLES = """
  skulkctl store
  skulkctl store -o json | jq '[.items[].sizeBytes] | add'
"""


@verb(app, "store", Reach, Output, Table, examples=EXAMPLES)
def store(call: Invocation) -> int:
    """List the models in the shared store, its downloads, and its free space.

    To add a model, run: skulkctl model pull ORG/NAME, or skulkctl model import PATH.
    """
    from skulkctl.output.units import size_text
    from skulkctl.storage.store import STORE, store_items

    try:
        health = call.daemon.store_health()
    except CliError as error:
        raise not_usable(error) from error
    items = store_items(call.daemon.store_registry(), call.daemon.store_downloads())
    call.show_rows(STORE, items)
    free, total = size_text(health.free_bytes), size_text(health.total_bytes)
    call.messages.note(f"{health.store_path}: {free} free of {total}")
    return ExitCode.DONE


def not_usable(error: CliError) -> CliError:
    """The daemon has no store, or cannot reach it: both need the operator."""
    if error.code == STORE_NOT_CONFIGURED:
        return Refused(
            "this cluster has no model store",
            "skulk.yaml has no model_store section, or the section is disabled",
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

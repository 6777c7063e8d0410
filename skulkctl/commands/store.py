"""`skulkctl store`: what the shared model store has."""

from __future__ import annotations

from skulkctl.command import new_app
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
    """List the models of the shared store, what it is fetching, and how much room is left.

    Models come into the store with skulkctl model pull ORG/NAME, or by an import on its host.
    """
    from skulkctl.units import size_text
    from skulkctl.views.read import integer, text
    from skulkctl.views.store import STORE, store_items

    try:
        health = call.client.get("/store/health")
    except CliError as error:
        raise not_usable(error) from error
    items = store_items(call.client.get("/store/registry"), call.client.get("/store/downloads"))
    call.show_rows(STORE, items)
    free, total = integer(health, "freeBytes"), integer(health, "totalBytes")
    if free is not None and total is not None:
        call.talk.note(f"{text(health, 'storePath')}: {size_text(free)} free of {size_text(total)}")
    return ExitCode.DONE


def not_usable(error: CliError) -> CliError:
    """The daemon has no store, or cannot reach it: both need the operator."""
    said = " ".join([error.what, *error.why])
    if "not configured" in said:
        return Refused(
            "this cluster has no model store",
            "skulk.yaml has no model_store section, or it is switched off",
            hints=["skulkctl config set model_store.store_host HOST", "see docs/storage.md"],
            details=error.details,
        )
    if "unreachable" in said.lower() and "Store" in said:
        return CliError(
            "the model store cannot be reached",
            *error.why,
            hints=["is skulkd running on the store host?  skulkctl nodes"],
            details=error.details,
        )
    return error

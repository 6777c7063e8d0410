"""A command that fails in a way nobody expected; a test puts it into the command table."""

from __future__ import annotations

from skulkctl.cli import Invocation, new_app, verb

app = new_app()


@verb(app, "crash", examples="  skulkctl crash")
def crash(call: Invocation) -> int:
    """Fail."""
    return 1 // int(call.quiet)

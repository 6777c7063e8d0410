"""`skulkctl doctor`: gather the facts, run the checks, print the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Invocation, Output, Reach, Table, new_app, size, verb
from skulkctl.errors import Unreachable
from skulkctl.exits import ExitCode

if TYPE_CHECKING:
    from skulkctl.doctor.checklist import CheckItem

app = new_app()

FOUND = ("warn", "fail")

EXAMPLES = """
  skulkctl doctor
  skulkctl doctor --expect-nodes 3 --min-free 50GiB
  skulkctl doctor --strict -q || echo "the cluster needs attention"
"""


@verb(app, "doctor", Reach, Output, Table, examples=EXAMPLES)
def doctor(
    call: Invocation,
    expect_nodes: Annotated[
        int | None,
        typer.Option(
            "--expect-nodes", metavar="N", min=1, help="Fail unless the cluster has N nodes."
        ),
    ] = None,
    min_free_bytes: Annotated[
        int | None,
        typer.Option(
            "--min-free",
            metavar="SIZE",
            parser=size,
            help="Fail when a disk has less free space (e.g. 50GiB).",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as failures.")] = False,
) -> int:
    """Run the health checks: nodes, memory, disks, instances, clocks, certificates.

    Exit 0 if no check fails, 7 if a check fails (with --strict, also if one warns), 5 if no
    daemon responds. With -q, print only the names of the checks that cause exit 7, so that cron
    sends no mail for a warning.
    """
    from skulkctl.doctor.checklist import run_checks, without_daemon
    from skulkctl.doctor.gather import gather_facts, local_facts

    try:
        items = run_checks(gather_facts(call, expect_nodes, min_free_bytes))
    except Unreachable as error:
        why = "; ".join(error.why) or error.what
        items = without_daemon(why, next(iter(error.hints), None), local_facts(call))
        _show(call, items, strict)
        raise
    _show(call, items, strict)
    _give_hints(call, items)
    counts = Counter(item["result"] for item in items)
    call.messages.note(
        ", ".join(f"{counts[word]} {word}" for word in ("ok", "warn", "fail", "skip"))
    )
    found = counts["fail"] or (strict and counts["warn"])
    return ExitCode.PROBLEM if found else ExitCode.DONE


def _show(call: Invocation, items: Sequence[CheckItem], strict: bool) -> None:
    from skulkctl.doctor.checklist import CHECKS

    if call.format == "name":
        problem = FOUND if strict else ("fail",)
        found = {item["check"]: item for item in items if item["result"] in problem}
        items = list(found.values())
    call.show_rows(CHECKS, items)


def _give_hints(call: Invocation, items: Sequence[CheckItem]) -> None:
    hints = [item["hint"] for item in items if item["result"] in FOUND and item["hint"]]
    if call.format == "table":
        for hint in dict.fromkeys(hints):
            call.messages.hint(hint)

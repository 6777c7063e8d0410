"""`skulkctl doctor`: gather the facts, run the checklist, say what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import Unreachable, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, TABLE, verb
from skulkctl.units import parse_size
from skulkctl.views.read import Document

app = new_app()

FOUND = ("warn", "fail")

EXAMPLES = """
  skulkctl doctor
  skulkctl doctor --expect-nodes 3 --min-free 50GiB
  skulkctl doctor --strict -q || echo "somebody should look at the cluster"
"""


@verb(app, "doctor", REACH, FORMAT, TABLE, examples=EXAMPLES)
def doctor(
    call: Invocation,
    expect_nodes: Annotated[
        int | None,
        typer.Option("--expect-nodes", metavar="N", min=1, help="Fail unless there are N nodes."),
    ] = None,
    min_free: Annotated[
        str | None,
        typer.Option("--min-free", metavar="SIZE", help="Fail when a disk has less, as 50GiB."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="A warning is a problem too.")] = False,
) -> int:
    """Run the health checklist: every node there, fresh, with memory and disk to spare.

    Exit 0 when nothing fails, 7 when a check fails (with --strict also when one warns), 5 when
    no daemon answers. With -q only the names of the checks that make it exit 7 are printed, so
    that cron sends no mail for a warning.
    """
    from skulkctl.doctor.checklist import run_checks, without_daemon
    from skulkctl.doctor.gather import gather_facts, local_facts

    min_free_bytes = None if min_free is None else _size(min_free)
    try:
        items = run_checks(gather_facts(call, expect_nodes, min_free_bytes))
    except Unreachable as error:
        why = "; ".join(error.why) or error.what
        items = without_daemon(why, next(iter(error.hints), None), local_facts(call))
        _show(call, items, strict)
        raise
    _show(call, items, strict)
    _give_hints(call, items)
    counts = Counter(str(item["result"]) for item in items)
    call.talk.note(", ".join(f"{counts[word]} {word}" for word in ("ok", "warn", "fail", "skip")))
    found = counts["fail"] or (strict and counts["warn"])
    return ExitCode.PROBLEM if found else ExitCode.DONE


def _size(typed: str) -> int:
    try:
        return parse_size(typed)
    except ValueError as error:
        raise UsageMistake(f"--min-free: {error}") from None


def _show(call: Invocation, items: Sequence[Document], strict: bool) -> None:
    from skulkctl.doctor.checklist import CHECKS

    if call.format == "name":
        problem = FOUND if strict else ("fail",)
        found = {item["check"]: item for item in items if item["result"] in problem}
        items = list(found.values())
    call.show_rows(CHECKS, items)


def _give_hints(call: Invocation, items: Sequence[Document]) -> None:
    hints = [str(item["hint"]) for item in items if item["result"] in FOUND and item["hint"]]
    if call.format == "table":
        for hint in dict.fromkeys(hints):
            call.talk.hint(hint)

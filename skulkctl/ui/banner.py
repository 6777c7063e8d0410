"""The verdict at the top of every screen: what is wrong, what ends it, what to press. Pure."""

from __future__ import annotations

from skulkctl.output.terminal import width
from skulkctl.output.units import age_text
from skulkctl.ui.lines import Line, clip, line, shorten, wrap
from skulkctl.ui.snapshot import WIDE
from skulkctl.verdict import Finding, State
from skulkctl.verdict.drafts import upper_first

SYMBOLS = {
    State.OK: ("●", "ok"),
    State.WAITING: ("◌", "waiting"),
    State.RECOVERED: ("▲", "attention"),
    State.STALE: ("▲", "attention"),
    State.RANK_MISSING: ("✖", "problem"),
    State.NODE_GONE: ("✖", "problem"),
    State.HANG: ("✖", "problem"),
}
"""Symbol and role of each state; its word is always beside them."""


def banner(finding: Finding, columns: int, read_only: bool, keys: bool = True) -> list[Line]:
    """A box on wide screens, a few lines on narrow ones, one line when all is well."""
    if finding.state is State.OK:
        symbol, role = SYMBOLS[finding.state]
        return [line((f" {symbol} {finding.state}", role), f"  {finding.summary}")]
    if columns >= WIDE:
        return _box(finding, columns, read_only, keys)
    return _narrow(finding, columns)


def headline(finding: Finding) -> str:
    """The state, and since when."""
    if finding.waits_for is not None and finding.still_s is not None:
        return f"{finding.state}  for {finding.waits_for}, {age_text(finding.still_s)}"
    if finding.state in (State.HANG, State.WAITING) and finding.still_s is not None:
        return f"{finding.state}  no rank has moved for {age_text(finding.still_s)}"
    return str(finding.state)


def deadline_text(finding: Finding) -> str:
    """Which timeout ends which ranks, and when."""
    if finding.deadlines:
        return upper_first("; ".join(map(str, finding.deadlines))) + "."
    return "No known timeout ends this." if finding.state is State.HANG else ""


def next_steps(finding: Finding, read_only: bool, keys: bool) -> str:
    """Keys first, then the same as commands."""
    if not finding.next:
        return ""
    verbs = [command.split()[1] for command in finding.next if command.startswith("skulkctl ")]
    steps = []
    if keys and "capture" in verbs:
        steps.append("c capture (changes nothing)")
    if keys and "cancel" in verbs and not read_only:
        steps.append("x cancel")
    commands = "   ".join(finding.next)
    return f"{', then '.join(steps)}   same: {commands}" if steps else commands


def _box(finding: Finding, columns: int, read_only: bool, keys: bool) -> list[Line]:
    symbol, role = SYMBOLS[finding.state]
    inner = columns - 4
    head = f"─ {symbol} {headline(finding)} "
    tail = f" rule {finding.rule} ─" if finding.rule else ""
    rule = "─" * max(0, columns - 2 - width(head) - width(tail))
    deadlines = deadline_text(finding)
    rows = [row for sentence in finding.sentences for row in wrap(sentence, inner)]
    rows += wrap(deadlines, inner) if deadlines else []
    steps = next_steps(finding, read_only, keys)
    rows += [f"Next: {steps}"] if steps else []
    body = [
        line(("│ ", role), clip(row, inner) + " " * (inner - width(clip(row, inner))), (" │", role))
        for row in rows
    ]
    top = line((f"╭{head}{rule}{tail}╮", role))
    return [top, *body, line((f"╰{'─' * (columns - 2)}╯", role))]


def _narrow(finding: Finding, columns: int) -> list[Line]:
    symbol, role = SYMBOLS[finding.state]
    label = f"{symbol} {finding.state} {finding.rule or ''}".rstrip()
    since = "" if finding.still_s is None else f" ({age_text(finding.still_s)})"
    first, *rest = wrap(f"{finding.summary}{since}", columns - width(label) - 3)
    lines = [line((f" {label}", role), f"  {first}")]
    for row in wrap(" ".join(rest), columns - 1)[:2] if rest else []:
        lines.append(line(f" {row}"))
    deadlines = deadline_text(finding)
    lines += [line(f" {row}") for row in wrap(deadlines, columns - 2)] if deadlines else []
    if finding.next:
        lines.append(line((" next: ", "strong"), shorten(finding.next[0], columns - 8)))
    return lines

"""The verdict at the top of every screen: what, who, when it ends, and what to press. Pure."""

from __future__ import annotations

from skulkctl.screen import width
from skulkctl.tui.lines import Line, clip, line, shorten, wrap
from skulkctl.tui.shots import WIDE
from skulkctl.units import age_text
from skulkctl.verdict import Finding, State

ROLES = {
    State.OK: "ok",
    State.WAITING: "attention",
    State.RECOVERED: "attention",
    State.STALE: "attention",
    State.RANK_MISSING: "problem",
    State.NODE_GONE: "problem",
    State.HANG: "problem",
}


def banner(finding: Finding, columns: int, read_only: bool, keys: bool = True) -> list[Line]:
    """A box on wide screens, a few lines on narrow ones, one line when all is well."""
    if finding.state is State.OK:
        return [line((f" {finding.state}", ROLES[finding.state]), f"  {' '.join(finding.says)}")]
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


def fate(finding: Finding) -> str:
    """Who dies when."""
    if finding.deadlines:
        told = "; ".join(str(one) for one in finding.deadlines)
        return told[0].upper() + told[1:] + "."
    return "No known timeout ends this." if finding.state is State.HANG else ""


def next_steps(finding: Finding, read_only: bool, keys: bool) -> str:
    """Keys first, then the same as commands."""
    if not finding.next:
        return ""
    capture = next((one for one in finding.next if one.startswith("skulkctl capture")), None)
    cancel = next((one for one in finding.next if one.startswith("skulkctl cancel")), None)
    told = []
    if keys and capture:
        told.append("C capture (changes nothing)")
    if keys and cancel and not read_only:
        told.append("^x cancel")
    shown = "   ".join(finding.next)
    return f"{', then '.join(told)}   same: {shown}" if told else shown


def _box(finding: Finding, columns: int, read_only: bool, keys: bool) -> list[Line]:
    role = ROLES[finding.state]
    inner = columns - 4
    head = f"━ {headline(finding)} "
    tail = f" rule {finding.rule} ━" if finding.rule else ""
    rule = "━" * max(0, columns - 2 - width(head) - width(tail))
    rows = [row for sentence in finding.says for row in wrap(sentence, inner)]
    rows += wrap(fate(finding), inner) if fate(finding) else []
    steps = next_steps(finding, read_only, keys)
    rows += [f"Next: {steps}"] if steps else []
    body = [
        line(("┃ ", role), clip(row, inner) + " " * (inner - width(clip(row, inner))), (" ┃", role))
        for row in rows
    ]
    top = line((f"┏{head}{rule}{tail}┓", role))
    return [top, *body, line((f"┗{'━' * (columns - 2)}┛", role))]


def _narrow(finding: Finding, columns: int) -> list[Line]:
    role = ROLES[finding.state]
    label = f"{finding.state} {finding.rule or ''}".rstrip()
    since = "" if finding.still_s is None else f" ({age_text(finding.still_s)})"
    told = f"{' '.join(finding.says)}{since}"
    first, *rest = wrap(told, columns - width(label) - 3)
    lines = [line((f" {label}", role), f"  {first}")]
    for row in wrap(" ".join(rest), columns - 1)[:2] if rest else []:
        lines.append(line(f" {row}"))
    end = fate(finding)
    lines += [line(f" {row}") for row in wrap(end, columns - 2)] if end else []
    if finding.next:
        lines.append(line((" next: ", "strong"), shorten(finding.next[0], columns - 8)))
    return lines

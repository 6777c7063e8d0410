"""The timeline as `--once` prints it, and what its page shares with the screen. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from skulkctl.output.units import age_text
from skulkctl.ui.banner import banner
from skulkctl.ui.filters import BadFilter, parse_filter
from skulkctl.ui.gantt import gantt
from skulkctl.ui.lanes import differences
from skulkctl.ui.lines import BLANK, Line, fit_lines, line, spread
from skulkctl.ui.recorder import tail
from skulkctl.ui.snapshot import WIDE, Snapshot, View
from skulkctl.verdict.ranks import Group, Rank


def timeline_page(snapshot: Snapshot, view: View, columns: int) -> list[Line]:
    """The whole page, as long as it needs to be."""
    group = view.group_of(snapshot)
    lines = [header(snapshot, view, group, columns), *verdict_lines(snapshot, view, columns)]
    if group is None:
        return fit_lines([*lines, BLANK, nothing(view)], columns, view.ascii)
    lines += gantt(snapshot, view, group, columns, None).lines
    lines += tail(snapshot, view.rank_of(group, snapshot), columns, 6)
    return fit_lines(lines, columns, view.ascii)


def nothing(view: View) -> Line:
    """What is shown instead of lanes."""
    why = "no instance has a problem" if view.only_problems else "nothing is placed"
    return line((f" {why}", "muted"))


def verdict_lines(
    snapshot: Snapshot, view: View, columns: int, *, keys: bool = False
) -> list[Line]:
    """The verdict on the instance that is shown, then what is wrong besides."""
    group = view.group_of(snapshot)
    finding = snapshot.verdict.worst if group is None else snapshot.finding(group)
    lines = banner(finding, columns, view.read_only, keys and not view.offline)
    for other in snapshot.verdict.findings:
        if other.instance_id is None and other.is_problem and group is not None:
            lines.append(line((f" ✖ {other.state}", "problem"), f"  {other.summary}"))
    return lines


def header(snapshot: Snapshot, view: View, group: Group | None, columns: int) -> Line:
    """Context, instance, and how old the data is."""
    context = f"{snapshot.context}  " if snapshot.context else ""
    fresh = snapshot.replay or f"LIVE {snapshot.every_s:g} s"
    age = "" if snapshot.replay else f"age {age_text(snapshot.age_s)}"
    right = "  ".join(part for part in (fresh, age, snapshot.skew_text) if part)
    instance = instance_text(snapshot, view, group, columns)
    return spread(f" timeline  {context}{instance}", f"{right} ", columns, "strong")


def instance_text(snapshot: Snapshot, view: View, group: Group | None, columns: int) -> str:
    """Which instance is shown, of how many."""
    if group is None:
        return "nothing placed"
    problems = sum(1 for finding in snapshot.verdict.findings if finding.is_problem)
    groups = view.groups_of(snapshot)
    text = f"{group.short} {group.model_id} x{group.world_size}"
    if len(groups) > 1 and columns >= WIDE:
        plural = "" if problems == 1 else "s"
        return f"{text}  ({groups.index(group) + 1} of {len(groups)}, {problems} problem{plural})"
    return f"{groups.index(group) + 1}/{len(groups)} {text}" if len(groups) > 1 else text


def filtered(group: Group, typed: str) -> tuple[Group, str]:
    """The ranks that match, and how many do not; all of them when the filter is not valid."""
    try:
        wanted = parse_filter(typed)
    except BadFilter as error:
        return group, str(error)
    kept = tuple(rank for rank in group.ranks if wanted.fits(_fields(rank)))
    hidden = len(group.ranks) - len(kept)
    text = f"{hidden} of {len(group.ranks)} ranks hidden" if hidden else ""
    return (replace(group, ranks=kept) if kept else group), text


def _fields(rank: Rank) -> dict[str, str]:
    named = {
        "rank": str(rank.rank),
        "node": rank.node,
        "phase": rank.phase,
        "status": rank.status,
        "task": rank.task_id or "",
    }
    return {**named, "": " ".join(named.values())}


def next_difference(snapshot: Snapshot, view: View) -> tuple[View, str]:
    """The view at the next moment where the ranks differ, the first again after the last."""
    group = view.group_of(snapshot)
    found = [] if group is None else differences(group, snapshot.skews)
    if not found:
        return view, "the ranks have not differed in what their recorders keep"
    later = [moment for moment in found if moment[0] > (view.cross_s or 0.0) + 0.001]
    at_s, phases = later[0] if later else found[0]
    clock = datetime.fromtimestamp(at_s, UTC).strftime("%H:%M:%S")
    pan_s = max(0.0, snapshot.now_s - at_s - view.span_s * 2 / 3)
    pan_s = pan_s if at_s < snapshot.now_s - view.span_s else view.pan_s
    return replace(view, pan_s=pan_s, cross_s=at_s), f"differ from {clock}Z: {phases}"

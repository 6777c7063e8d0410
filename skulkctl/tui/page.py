"""The timeline screen as lines: header, verdict, lanes, rulers, the recorder's tail. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from skulkctl.screen import pad, width
from skulkctl.tui.alphabet import ROLES
from skulkctl.tui.banner import banner
from skulkctl.tui.filters import BadFilter, parse_filter
from skulkctl.tui.lanes import (
    Lane,
    Window,
    agree_ruler,
    differences,
    lane_of,
    marks_of,
    moved_ruler,
)
from skulkctl.tui.lines import BLANK, Line, clip, line, shorten, spread, to_ascii
from skulkctl.tui.recorder_page import tail
from skulkctl.tui.shots import SMALL, WIDE, Shot, View
from skulkctl.units import age_text
from skulkctl.verdict.ranks import Group, Rank
from skulkctl.verdict.waits import Wait

_KEYS = {
    "wide": "? help   / filter   enter recorder   C capture   ^x cancel   p pause   "
    "n next difference   q quit",
    "narrow": "?help /filter enter C capture ^x p pause n diff :cmd q",
}


@dataclass(frozen=True, slots=True)
class Columns:
    """Where the lanes begin, and how wide they are."""

    node: int
    wide: bool
    lane: int


def timeline_page(
    shot: Shot, view: View, columns: int, rows: int | None, *, keys: bool = True
) -> list[Line]:
    """The whole screen. `rows` None: as long as it needs to be, without a footer."""
    lines = _page(shot, view, columns, rows, keys)
    if rows is not None:
        end = footer(view, columns, offline=view.offline)
        lines = [*lines[: rows - 1], *[BLANK] * (rows - 1 - len(lines)), end]
    shown = [one.cut(columns) for one in lines]
    return [to_ascii(one) for one in shown] if view.ascii else shown


def _page(shot: Shot, view: View, columns: int, rows: int | None, keys: bool) -> list[Line]:
    group = view.group_of(shot)
    finding = shot.judgement.worst if group is None else shot.finding(group)
    told = banner(finding, columns, view.read_only, keys and not view.offline)
    if rows is not None and (columns < SMALL[0] or rows < SMALL[1]):
        return told
    lines = [header(shot, view, group, columns), *told]
    lines += _elsewhere(shot, group)
    if group is None:
        why = "no placement is in trouble" if view.only_problems else "nothing is placed"
        return [*lines, BLANK, line((f" {why}", "muted"))]
    lanes, rulers = _lanes(shot, view, group, columns)
    room = None if rows is None else rows - 1 - len(lines) - len(rulers) - 1
    lines += _fitting(lanes, view.rank_of(group, shot), group, room)
    lines += rulers
    left = 6 if rows is None else rows - 1 - len(lines)
    if left >= 3:
        lines += tail(shot, view, view.rank_of(group, shot), columns, min(left, 12))
    return lines


def header(shot: Shot, view: View, group: Group | None, columns: int) -> Line:
    """Context, placement, and how fresh all of it is."""
    problems = sum(1 for one in shot.judgement.findings if one.is_problem)
    count = len(shot.groups)
    place = "nothing placed"
    if group is not None:
        position = shot.groups.index(group) + 1
        place = f"{group.short} {group.model_id} x{group.world_size}"
        if count > 1 and columns >= WIDE:
            place += f"  ({position} of {count}, {problems} problem{'' if problems == 1 else 's'})"
        elif count > 1:
            place = f"{position}/{count} {place}"
    context = f"{'ctx ' if columns >= WIDE else ''}{shot.context}  " if shot.context else ""
    if shot.replay:
        fresh = shot.replay
    elif view.paused_at:
        fresh = f"PAUSED {view.paused_at}"
    elif shot.trouble:
        fresh = "NO ANSWER"
    else:
        fresh = f"LIVE {shot.every_s:g} s"
    age = "" if shot.replay else f"age {age_text(shot.age_s)}"
    right = "  ".join(one for one in (fresh, age, shot.skew_text) if one)
    role = "problem" if shot.trouble else "strong"
    return spread(f" timeline  {context}{place}", f"{right} ", columns, role)


def _elsewhere(shot: Shot, group: Group | None) -> list[Line]:
    """What is wrong besides the placement that is shown: nodes, and our own connection."""
    lines = [line((" ! ", "problem"), shot.trouble)] if shot.trouble else []
    shown = None if group is None else group.instance_id
    for one in shot.judgement.findings:
        if one.instance_id is None and one.is_problem and shown is not None:
            lines.append(line((f" {one.state}", "problem"), f"  {' '.join(one.says)}"))
    return lines


def _fitting(lanes: list[Line], chosen: Rank, group: Group, room: int | None) -> list[Line]:
    """The header row and as many lanes as fit around the chosen one."""
    head, *rest = lanes
    if room is None or len(rest) <= room:
        return lanes
    position = group.ranks.index(chosen)
    start = min(max(0, position - room // 2), len(rest) - room)
    return [head, *rest[start : start + max(room, 1)]]


def _lanes(shot: Shot, view: View, group: Group, columns: int) -> tuple[list[Line], list[Line]]:
    layout = _layout(group, columns)
    end_s = shot.now_s - view.pan_s
    window = Window(end_s - view.span_s, end_s, layout.lane)
    lanes = {
        rank: lane_of(rank, marks_of(rank, shot.skews), window, shot.now_s) for rank in group.ranks
    }
    kept, hidden, trouble = _filtered(group, view.filter)
    chosen = view.rank_of(group, shot)
    rows = [_head(layout, window, view)]
    rows += [_row(rank, lanes[rank], layout, rank is chosen) for rank in kept]
    rows += [_absent(number, layout) for number in group.missing]
    every = list(lanes.values())
    left = columns - layout.lane - 2
    rulers = [
        _ruler("agree: same phase on every rank", agree_ruler(every, window), left, "x"),
        _ruler("moved: any new recorder entry", moved_ruler(every, window), left, ""),
    ]
    difference = shot.finding(group).difference
    if difference is not None and shot.finding(group).is_problem:
        told = f" first differing attr  {difference[0]}: {' '.join(difference[1])}"
        rulers.append(line((told, "attention")))
    if view.note:
        rulers.append(line((f" {view.note}", "attention")))
    if view.filter:
        told = trouble or f"{hidden} of {len(group.ranks)} ranks hidden"
        rulers.append(line((f" /{view.filter}", "selected"), f"  {told}, esc clears"))
    return rows, rulers


def _filtered(group: Group, typed: str) -> tuple[list[Rank], int, str]:
    try:
        wanted = parse_filter(typed)
    except BadFilter as error:
        return list(group.ranks), 0, str(error)
    kept = [rank for rank in group.ranks if wanted.fits(_fields(rank))]
    return kept, len(group.ranks) - len(kept), ""


def _fields(rank: Rank) -> dict[str, str]:
    named = {
        "rank": str(rank.rank),
        "node": rank.node,
        "phase": rank.phase,
        "status": rank.status,
        "task": rank.task_id or "",
    }
    return {**named, "": " ".join(named.values())}


def _layout(group: Group, columns: int) -> Columns:
    wide = columns >= WIDE
    longest = max([width(rank.node) for rank in group.ranks] or [4])
    node = min(longest, 16 if wide else 8)
    prefix = node + (57 if wide else 28)
    return Columns(node, wide, max(8, columns - prefix - 2))


def _head(layout: Columns, window: Window, view: View) -> Line:
    start = datetime.fromtimestamp(window.start_s, UTC).strftime("%H:%M:%S")
    scale = f"1 cell = {_seconds(window.cell_s)}"
    ends = datetime.fromtimestamp(window.end_s, UTC).strftime("%H:%M:%S")
    end = ends if view.pan_s else "now"
    middle = layout.lane + 2 - len(start) - len(end)
    axis = start + scale.center(middle)[:middle] + end
    node = pad("node", layout.node)
    if layout.wide:
        titles = f" rank {node} {'status':<11}{'phase':<17}{'in':>6}{'idle':>6} {'waits on':<9}"
    else:
        titles = f" r  {node} {'phase':<16}{'in':>6} "
    return line((f"{titles}{axis}", "muted"))


def _row(rank: Rank, lane: Lane, layout: Columns, chosen: bool) -> Line:
    mark = ">" if chosen else " "
    node = pad(clip(rank.node, layout.node), layout.node)
    phase = shorten(rank.phase, 16)
    inside = clip(age_text(rank.in_phase_s), 6)
    role = "selected" if chosen else None
    if layout.wide:
        status = shorten(rank.status.removeprefix("Runner"), 10)
        idle = "-" if rank.idle_s is None else clip(age_text(rank.idle_s), 6)
        told = f"{mark}{rank.rank:<5}{node} {status:<11}{phase:<17}{inside:>6}{idle:>6} "
        told += f"{waits_on(rank):<9}"
    else:
        told = f"{mark}{rank.rank:<3}{node} {phase:<16}{inside:>6} "
    if not rank.alive:
        role = "problem"
    return line((told, role), "|", *_coloured(lane.cells), "|")


def _coloured(cells: str) -> list[tuple[str, str | None]]:
    pieces: list[tuple[str, str | None]] = []
    for cell in cells:
        role = ROLES.get(cell)
        if pieces and pieces[-1][1] == role:
            pieces[-1] = (pieces[-1][0] + cell, role)
        else:
            pieces.append((cell, role))
    return pieces


def waits_on(rank: Rank) -> str:
    """In a word or two, whom this rank waits for."""
    if rank.live is not None and rank.live.frozen:
        return "frozen"
    if rank.waiting is not None:
        return clip(rank.waiting.reason, 9)
    return {
        Wait.RECV: f"{rank.rank - 1} data",
        Wait.SEND: f"{rank.rank + 1} takes",
        Wait.GATHER: "gather",
        Wait.BARRIER: "barrier",
        Wait.AGREEMENT: "agree",
        Wait.PLANNER: "planner",
        Wait.LOCAL: "itself",
        Wait.STEP: "a step",
        Wait.AFTER: "itself",
        Wait.REST: "-",
    }[rank.wait]


def _absent(number: int, layout: Columns) -> Line:
    told = f" {number:<5}" if layout.wide else f" {number:<3}"
    return line((f"{told}no runner", "problem"))


def _ruler(label: str, cells: str, left: int, alarm: str) -> Line:
    short = label if width(label) <= left else label.partition(":")[0]
    pieces: list[tuple[str, str | None]] = [(pad(short, left - 1, right=True) + " ", "muted")]
    if not alarm:
        return line(*pieces, "|", (cells, "muted"), "|")
    return line(*pieces, "|", *((cell, "attention" if cell == alarm else "muted")
                                for cell in cells), "|")  # fmt: skip


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def footer(view: View, columns: int, *, offline: bool = False) -> Line:
    """At most eight keys; the help screen has them all. A recording cannot be acted upon."""
    told = _KEYS["wide" if columns >= WIDE else "narrow"]
    if offline:
        told = told.replace("C capture   ", "").replace("C capture ", "")
        told = told.replace("p pause", ", . frames")
    if view.read_only or offline:
        told = told.replace("^x cancel   ", "").replace("^x ", "")
    if view.paused_at:
        told = told.replace("p pause", "p resume")
    return line((f" {told}", "muted"))


def next_difference(shot: Shot, view: View) -> View:
    """The view at the next moment where ranks part; the first again after the last."""
    from dataclasses import replace

    group = view.group_of(shot)
    found = [] if group is None else differences(group, shot.skews)
    if not found:
        return replace(view, note="the ranks have not differed in what their recorders keep")
    shown_s = shot.now_s - view.pan_s - view.span_s * 2 / 3
    later = [one for one in found if one[0] > shown_s + 0.001] if view.pan_s else found
    at_s, told = later[0] if later else found[0]
    clock = datetime.fromtimestamp(at_s, UTC).strftime("%H:%M:%S")
    pan_s = max(0.0, shot.now_s - at_s - view.span_s / 3)
    return replace(view, pan_s=pan_s, note=f"differ from {clock}Z: {told}")

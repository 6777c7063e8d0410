"""The ranks of an instance over time as lines: axis, bars, markers, who waits on whom. Pure.

With colours a cell shows two moments, one in each half. Without, it has the letter of the phase
that began in it or the sign of what the rank waits for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from skulkctl.output.terminal import pad, width
from skulkctl.output.units import age_text, size_text
from skulkctl.ui.alphabet import (
    LETTERS,
    PATTERNS,
    SHORT,
    UNKNOWN,
    cell_role,
    family_legend,
    fill_legend,
)
from skulkctl.ui.lanes import (
    Lane,
    Mark,
    Span,
    Window,
    agree_ruler,
    lane_of,
    marks_of,
    moved_ruler,
    span_at,
    spans_of,
)
from skulkctl.ui.lines import Line, Piece, bar, clip, line, shorten, spark
from skulkctl.ui.rates import memory_points
from skulkctl.ui.snapshot import WIDE, Snapshot, View
from skulkctl.ui.wait_graph import wait_graph
from skulkctl.verdict import State
from skulkctl.verdict.ranks import Group, Rank
from skulkctl.verdict.waits import Wait, waiting_text

if TYPE_CHECKING:
    from skulkd.wire.runners import RunnerStatus

_TINY = 60
_STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800)
_MARKS = {"first_token": ("◆", "compute"), "error": ("✖", "error")}


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns: the rank's label, its lane, its memory, and the graph."""

    node: int
    phase: bool
    lane: int
    memory: bool
    graph: int

    @property
    def left(self) -> int:
        """Where the first cell of a lane is."""
        return 7 + self.node + (16 if self.phase else 0) + 1


@dataclass(frozen=True)
class Gantt:
    """The drawn lines, and what is where in them."""

    lines: tuple[Line, ...]
    layout: Layout
    window: Window
    ranks_at: Mapping[int, Rank]
    """The rank that is drawn in a line."""

    def time_at(self, column: int) -> float | None:
        """The moment at a column; None beside the lanes."""
        cell = column - self.layout.left
        if not 0 <= cell < self.window.cells:
            return None
        return self.window.start_s + (cell + 0.5) * self.window.cell_s


@dataclass(frozen=True)
class _Drawn:
    rank: Rank
    marks: Sequence[Mark]
    spans: Sequence[Span]
    lane: Lane


def layout_of(group: Group, columns: int, has_culprit: bool) -> Layout:
    """Where there is room: memory if any rank told it, the graph if it points at somebody."""
    longest = max([width(rank.node) for rank in group.ranks] or [4])
    wide, tiny = columns >= WIDE, columns < _TINY
    node = min(longest, 16 if wide else 6 if tiny else 8)
    words = min(30, columns // 5) if has_culprit else 10
    graph = words if wide else 0 if tiny else 6
    has_memory = wide and any(memory_points(rank) for rank in group.ranks)
    memory = 15 if has_memory else 0
    left = 7 + node + (0 if tiny else 16) + 1
    return Layout(node, not tiny, max(6, columns - left - 1 - memory - graph), has_memory, graph)


def gantt(snapshot: Snapshot, view: View, group: Group, columns: int, rows: int | None) -> Gantt:
    """Everything between the verdict and the recorder, in at most so many rows."""
    layout = layout_of(group, columns, snapshot.finding(group).culprit is not None)
    end_s = snapshot.now_s - view.pan_s
    window = Window(end_s - view.span_s, end_s, layout.lane)
    kept = list(group.ranks)
    victims = waiting_victims(group, snapshot)
    drawn = [_drawn(rank, snapshot, window, rank.rank in victims) for rank in kept]
    under = _under(snapshot, view, group, drawn, layout, window, columns)
    lanes, ranks_at = _fitting(
        _lane_rows(snapshot, view, group, drawn, layout, window, rows, len(under)),
        view.rank_of(group, snapshot),
        None if rows is None else rows - 1 - len(under),
    )
    lanes += [line((f" {number:<3} no runner", "problem")) for number in group.missing]
    head = _axis(layout, window, view)
    return Gantt((head, *lanes, *under), layout, window, {n + 1: r for n, r in ranks_at.items()})


def waiting_victims(group: Group, snapshot: Snapshot) -> set[int]:
    """The ranks of which only the verdict says that they wait for another one."""
    finding = snapshot.finding(group)
    if finding.culprit is None or finding.state not in (State.HANG, State.WAITING):
        return set()
    victims = {victim.rank for victim in finding.victims}
    return {rank.rank for rank in group.ranks if rank.wait is Wait.STEP and rank.rank in victims}


def _drawn(rank: Rank, snapshot: Snapshot, window: Window, is_victim: bool) -> _Drawn:
    marks = marks_of(rank, snapshot.skews)
    spans = spans_of(rank, marks, snapshot.now_s, is_victim=is_victim)
    return _Drawn(rank, marks, spans, lane_of(rank, marks, window, snapshot.now_s))


def _axis(layout: Layout, window: Window, view: View) -> Line:
    """Times over the lanes; the crosshair has its own."""
    cells = [" "] * window.cells
    step_s = next((step for step in _STEPS_S if step / window.cell_s >= 11), _STEPS_S[-1])
    tick_s = (window.start_s // step_s + 1) * step_s
    while tick_s < window.end_s:
        at = int((tick_s - window.start_s) / window.cell_s)
        for offset, letter in enumerate(f"╷{_clock(tick_s, step_s)}"[: window.cells - at]):
            cells[at + offset] = letter
        tick_s += step_s
    text = "".join(cells).replace("╷", "·")
    titles = f" {'#':<3} {pad('node', layout.node)} "
    titles += f"  {'phase':<9}{'for':>6} " if layout.phase else "  "
    tail = "now" if not view.pan_s else ""
    right = " MLX memory   " if layout.memory else ""
    graph = "waits on" if layout.graph > 8 else ""
    room = window.cells - len(tail)
    # A time that does not fit before the end would be read as another one.
    text = text if not tail else text[:room].rpartition("·")[0].ljust(room) + tail
    return line((pad(titles, layout.left) + text, "muted"), (f" {right} {graph}", "muted"))


def _clock(at_s: float, step_s: float) -> str:
    moment = datetime.fromtimestamp(at_s, UTC)
    if step_s < 1:
        return moment.strftime("%S.%f")[:4]
    return moment.strftime("%H:%M:%S")


def _lane_rows(
    snapshot: Snapshot, view: View, group: Group, drawn: Sequence[_Drawn], layout: Layout,
    window: Window, rows: int | None, under: int,
) -> list[tuple[Rank, list[Line]]]:  # fmt: skip
    chosen = view.rank_of(group, snapshot)
    finding = snapshot.finding(group)
    rank = finding.culprit.rank if finding.culprit else None
    victims = waiting_victims(group, snapshot)
    graph = wait_graph(group, rank, victims, layout.graph, is_problem=finding.is_problem)
    # Whoever others wait for is no problem while it is known to make progress.
    culprit = finding.culprit if finding.is_problem else None
    tall = rows is not None and rows - 1 - under >= 2 * len(drawn) and not _is_plain(view)
    statuses = snapshot.cluster.state.runners if snapshot.cluster else {}
    shown = []
    for one, beside in zip(drawn, graph, strict=True):
        status = statuses.get(one.rank.runner_id)  # type: ignore[call-overload]
        symbol = symbol_of(one.rank, culprit, one.rank.rank in victims)
        first = _lane_line(one, one.rank is chosen, view, layout, window, beside, symbol, status)
        second = [_labels(one, layout, window)] if tall else []
        shown.append((one.rank, [first, *second]))
    if not any(second.plain.strip() for _, (_, *rest) in shown for second in rest):
        return [(rank, lines[:1]) for rank, lines in shown]
    return shown


def _fitting(
    shown: Sequence[tuple[Rank, list[Line]]], chosen: Rank, room: int | None
) -> tuple[list[Line], dict[int, Rank]]:
    """As many lanes as there is room for, around the chosen one."""
    kept = list(shown)
    if room is not None and sum(len(lines) for _, lines in kept) > room:
        position = next(n for n, (rank, _) in enumerate(kept) if rank is chosen)
        room = max(1, room)
        start = min(max(0, position - room // 2), max(0, len(kept) - room))
        kept = [(rank, lines[:1]) for rank, lines in kept[start : start + room]]
    lines: list[Line] = []
    ranks_at: dict[int, Rank] = {}
    for rank, own in kept:
        for drawn in own:
            ranks_at[len(lines)] = rank
            lines.append(drawn)
    return lines, ranks_at


def symbol_of(rank: Rank, culprit: object, is_victim: bool = False) -> tuple[str, str]:
    """How a rank is, in one sign: the culprit, dead, waiting, working, at rest."""
    if not rank.alive and rank.waiting is None:
        return "✖", "problem"
    if rank.is_frozen or (culprit is not None and rank.culprit == culprit):
        return "✖", "problem"
    if rank.waiting is not None:
        return "◌", "waiting"
    if rank.wait is Wait.REST:
        return "·", "muted"
    return ("●", "ok") if rank.works and not is_victim else ("◌", "attention")


def _lane_line(
    one: _Drawn, chosen: bool, view: View, layout: Layout, window: Window, beside: Piece,
    drawn_as: Piece, status: RunnerStatus | None,
) -> Line:  # fmt: skip
    rank = one.rank
    symbol, role = drawn_as
    label = (
        f"{'>' if chosen else ' '}{rank.rank:<3} {pad(clip(rank.node, layout.node), layout.node)} "
    )
    own = "selected" if chosen else "problem" if role == "problem" else None
    pieces: list[Piece] = [(label, own), (symbol, role), (" ", None)]
    if layout.phase:
        phase = shorten(SHORT.get(rank.phase, rank.phase), 9)
        pieces.append((f"{phase:<9}{clip(age_text(rank.in_phase_s), 6):>6} ", None))
    pieces += _start_progress(rank, status, window.cells) or _cells(one, view, window)
    if layout.memory:
        pieces += _memory(rank)
    return line(*pieces, (" ", None), beside)


def _start_progress(rank: Rank, status: RunnerStatus | None, cells: int) -> list[Piece]:
    """What a rank waits for or loads before it serves, as progress in its lane."""
    from skulkd.wire.runners import RunnerLoading

    if rank.waiting is not None:
        waiting = rank.waiting
        text = f" {waiting.reason} {waiting_text(waiting)} ".rstrip() + " "
        text = text if waiting_text(waiting) else f" waits for {waiting.reason} "
        done, total = waiting.done_bytes, waiting.total_bytes
        share = (done or 0) / total if total else None
    elif isinstance(status, RunnerLoading) and status.total_layers:
        text = f" loads {status.layers_loaded}/{status.total_layers} layers "
        share = status.layers_loaded / status.total_layers
    else:
        return []
    room = cells - width(text)
    if share is None or room < 6:
        return [(pad(shorten(text, cells), cells), "waiting")]
    return [*bar(share, room, "start"), (text, "waiting")]


def _cells(one: _Drawn, view: View, window: Window) -> list[Piece]:
    pieces = _letters(one.lane.cells) if _is_plain(view) else _halves(one, window)
    return _with_crosshair(pieces, view, window)


def _is_plain(view: View) -> bool:
    return view.ascii or view.plain


def _letters(cells: str) -> list[Piece]:
    return [(letter, cell_role(letter)) for letter in cells]


def _halves(one: _Drawn, window: Window) -> list[Piece]:
    """Each cell shows two moments; a phase that is long enough has its letter at its start."""
    pieces: list[Piece] = []
    half_s = window.cell_s / 2
    shown = ""
    phases = _phase_ends(one.spans)
    for start_s, _ in window.edges():
        spans = [span_at(one.spans, start_s + half_s * part) for part in (0.5, 1.5)]
        left, right = (UNKNOWN if span is None else span.family for span in spans)
        latest = spans[1]
        letter = ""
        if latest is not None and latest.entry.phase != shown:
            shown = latest.entry.phase
            lasts = phases[latest] - latest.start_s >= 2 * window.cell_s
            letter = LETTERS.get(shown, "?") if lasts else ""
        if letter and right not in (UNKNOWN, "idle"):
            pieces.append((letter, f"@{right}"))
        elif left == right:
            pieces.append((PATTERNS[left], left if left != UNKNOWN else None))
        else:
            pieces.append(("▌", f"{left}/{right}"))
    return pieces


def _phase_ends(spans: Sequence[Span]) -> dict[Span, float]:
    """When the phase of each span ends."""
    ends: dict[Span, float] = {}
    after: Span | None = None
    for span in reversed(spans):
        same = after is not None and after.entry.phase == span.entry.phase
        ends[span] = ends[after] if same and after is not None else span.end_s
        after = span
    return ends


def _with_crosshair(pieces: list[Piece], view: View, window: Window) -> list[Piece]:
    cell = cross_cell(view, window)
    if cell is None:
        return pieces
    text, role = pieces[cell]
    return [*pieces[:cell], (text if text.strip() else "│", f"{role or ''}+"), *pieces[cell + 1 :]]


def cross_cell(view: View, window: Window) -> int | None:
    """The cell under the crosshair; None when there is none in this window."""
    if view.cross_s is None or not window.start_s <= view.cross_s < window.end_s:
        return None
    return min(window.cells - 1, int((view.cross_s - window.start_s) / window.cell_s))


def _labels(one: _Drawn, layout: Layout, window: Window) -> Line:
    """The names of what is drawn above, where they fit."""
    cells = [" "] * window.cells
    for span in one.spans:
        hidden = span.end_s <= window.start_s or span.start_s >= window.end_s
        if hidden or span.family == "idle":
            continue
        first = max(0, int((span.start_s - window.start_s) / window.cell_s))
        last = min(window.cells, int((span.end_s - window.start_s) / window.cell_s))
        name = span.entry.detail or span.entry.phase
        text = name.removeprefix("pipeline_")
        if last - first > len(text) + 1:
            cells[first : first + len(text)] = text
    return line((" " * layout.left + "".join(cells).rstrip(), "muted"))


def _memory(rank: Rank) -> list[Piece]:
    points = memory_points(rank)
    if not points:
        return [(" " * 14, None)]
    text = size_text(int(points[-1]), "").replace("iB", "")
    return [(f" {text:>6} ", None), (spark(points, 6), "other")]


def _under(
    snapshot: Snapshot, view: View, group: Group, drawn: Sequence[_Drawn], layout: Layout,
    window: Window, columns: int,
) -> list[Line]:  # fmt: skip
    """Markers, rulers, what differs, the crosshair's readout, and the legend."""
    lanes = [one.lane for one in drawn]
    lines = [_marker_line(drawn, layout, window)]
    lines += (
        []
        if not layout.phase
        else [
            _ruler("agree: same phase on every rank", agree_ruler(lanes, window), layout, "x"),
            _ruler("moved: any new recorder entry", moved_ruler(lanes, window), layout, ""),
        ]
    )
    finding = snapshot.finding(group)
    if finding.difference is not None and finding.is_problem:
        values = f"{finding.difference[0]}: {' '.join(finding.difference[1])}"
        lines.append(line((f" first differing attr  {values}", "attention")))
    if view.cross_s is not None:
        lines += _readout(drawn, view.cross_s)
    legend = fill_legend() if _is_plain(view) else family_legend()
    scale = f"1 cell = {_seconds(window.cell_s)} "
    used = sum(width(text) for text, _ in legend)
    gap = columns - used - width(scale)
    tail: list[Piece] = [(" " * gap, None), (scale, "muted")] if gap > 0 else []
    return [*lines, line(*legend, *tail)]


def _marker_line(drawn: Sequence[_Drawn], layout: Layout, window: Window) -> Line:
    """Where requests began, first tokens came, and errors and cancels happened."""
    cells: list[Piece] = [(" ", None)] * window.cells
    named: set[str | None] = set()
    for one in drawn:
        for mark in one.marks:
            if not window.start_s <= mark.at_s < window.end_s:
                continue
            cell = int((mark.at_s - window.start_s) / window.cell_s)
            piece = _marker(mark, named)
            if piece is not None:
                cells[cell] = piece
    label = "request ▲  first token ◆ " if layout.left >= 27 else ""
    return line((pad(label, layout.left, right=True), "muted"), *cells)


def _marker(mark: Mark, named: set[str | None]) -> Piece | None:
    entry = mark.entry
    if entry.phase == "task_submission" and entry.task_id not in named:
        named.add(entry.task_id)
        return "▲", "accent"
    if mark.is_supervisors or entry.phase.startswith("cancel_"):
        return "✕", "cancel"
    if entry.phase == "error" or entry.event.endswith("timeout"):
        return _MARKS["error"]
    return _MARKS["first_token"] if entry.event.endswith("first_token") else None


def _readout(drawn: Sequence[_Drawn], cross_s: float) -> list[Line]:
    """What every rank did at that moment, since when, and for how long."""
    at = datetime.fromtimestamp(cross_s, UTC).strftime("%H:%M:%S.%f")[:12]
    lines = []
    for number, one in enumerate(drawn[:8]):
        span = span_at(one.spans, cross_s)
        head = f" ┊ {at if not number else '':<12}  {one.rank.rank:<3}{one.rank.node}  "
        if span is None:
            lines.append(line((head, "accent"), ("nothing recorded then", "muted")))
            continue
        entry = span.entry
        what = f"{entry.event} {entry.detail or ''}".strip()
        took = age_text(max(0.0, span.end_s - span.start_s))
        lines.append(
            line((head, "accent"), (f"{PATTERNS[span.family]} {span.family:<8}", span.family),
                 f"{entry.phase}  {what}", (f"  {took}", "strong"))
        )  # fmt: skip
    return lines


def _ruler(label: str, cells: str, layout: Layout, alarm: str) -> Line:
    short = label if width(label) < layout.left else label.partition(":")[0]
    head: Piece = (pad(short, layout.left - 1, right=True) + " ", "muted")
    return line(head, *((cell, "attention" if cell == alarm else "muted") for cell in cells))


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"

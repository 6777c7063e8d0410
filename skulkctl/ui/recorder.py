"""One runner's flight recorder as lines, beside what the other ranks did. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from skulkctl.output.terminal import pad, width
from skulkctl.output.units import age_text, size_text
from skulkctl.ui.alphabet import PATTERNS, SHORT, family
from skulkctl.ui.filters import BadFilter, parse_filter
from skulkctl.ui.lanes import RECORDER_SIZE, Mark, marks_of
from skulkctl.ui.lines import Line, line, shorten
from skulkctl.ui.snapshot import WIDE, Snapshot, View
from skulkctl.verdict import Deadline
from skulkctl.verdict.ranks import Group, Rank
from skulkctl.verdict.waits import Wait, recorded_wait

if TYPE_CHECKING:
    from skulkd.wire.timeline import TimelineEntry


def tail(snapshot: Snapshot, rank: Rank, columns: int, rows: int) -> list[Line]:
    """The newest entries of the selected rank, under the lanes."""
    marks = marks_of(rank, snapshot.skews)
    kept = rows - 2
    shown = marks[-kept:] if kept > 0 else []
    title = f"─ rank {rank.rank} recorder: last {len(shown)} of {len(marks)} "
    lines = [line((title + "─" * max(0, columns - len(title)), "muted"))]
    before = marks[-len(shown) - 1].at_s if len(marks) > len(shown) else None
    for mark in shown:
        lines.append(entry_line(mark, before, columns))
        before = mark.at_s
    return [*lines, _nothing_since(snapshot, rank)][:rows]


def entry_line(mark: Mark, before_s: float | None, columns: int) -> Line:
    """`time  delta  event  phase  detail  attributes`."""
    entry = mark.entry
    phase, (event, detail) = entry.phase, _event_and_detail(entry)
    # The longest name of a phase has 23 letters; a narrow screen has no room for it.
    cells = 23 if columns >= WIDE else 17
    named = pad(shorten(phase, cells), cells)
    body = f"{event:<6} {named} {detail}"
    words = f"{clock(mark.at_s)}  {_delta(mark.at_s, before_s):>8}  {body}  {_attrs(entry)}"
    role = "problem" if phase == "error" else "attention" if mark.is_supervisors else None
    return line((f"  {words}".rstrip(), role)).cut(columns)


def _event_and_detail(entry: TimelineEntry) -> tuple[str, str]:
    """Only enter and exit are short enough for the column of events."""
    if entry.event in ("enter", "exit"):
        return entry.event, entry.detail or ""
    return "event", f"{entry.event} {entry.detail or ''}".rstrip()


def clock(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M:%S.%f")[:12]


def _delta(at_s: float, before_s: float | None) -> str:
    return "" if before_s is None else f"+{at_s - before_s:.3f}"


def _attrs(entry: TimelineEntry) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in entry.attrs.items())


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _nothing_since(snapshot: Snapshot, rank: Rank) -> Line:
    shown = _since_text(snapshot, rank)
    words = f"  {clock(snapshot.now_s)}  {age_text(rank.still_s):>8}  ...    {shown}"
    return line((words, "muted"))


def _since_text(snapshot: Snapshot, rank: Rank) -> str:
    return "; ".join(fact for fact in _since_facts(snapshot, rank) if fact)


def _since_facts(snapshot: Snapshot, rank: Rank) -> list[str]:
    """What is true since the newest entry: where it is now, what ends it, its memory."""
    facts = ["nothing recorded yet" if rank.last is None else "nothing since", rank.now]
    facts += [
        f"its {limit.why} is {clock(snapshot.now_s + limit.in_s)[:8]}Z"
        for limit in _deadlines(snapshot, rank)
    ]
    return [*facts, _memory(rank)]


def _deadlines(snapshot: Snapshot, rank: Rank) -> list[Deadline]:
    """The timeouts that end this rank, as the verdict has them: the two must never differ."""
    found = snapshot.verdict.of(rank.instance_id)
    deadlines = () if found is None else found.deadlines
    return [deadline for deadline in deadlines if rank.rank in deadline.ranks]


def _memory(rank: Rank) -> str:
    memory = rank.runner.last_mlx_memory
    if memory is None:
        return ""
    parts = {"active": memory.active, "cache": memory.cache, "peak": memory.peak}
    sizes = [f"{size_text(size.in_bytes)} {name}" for name, size in parts.items() if size]
    return f"MLX {', '.join(sizes)}" if sizes else ""


_BESIDE_WORDS = 3
"""So many other ranks are described in words; more get a letter each."""
_WORD = 14
"""Cells for another rank in words."""
_OWN_ATTRS = frozenset({"rank", "src", "dst", "elapsed_ms", "wait_seconds", "shape"})
"""They differ between ranks that do the same."""
_DETAIL = 32
_SAME_S = 0.0005
"""Moments are shown in milliseconds."""
HEADERS = ("at", "after", "event", "phase", "detail", "other ranks then", "attributes")


@dataclass(frozen=True)
class Recorder:
    """What a table of the entries of one rank needs; a row is made when it is asked for.

    A row tells what eight other ranks did then: all rows of a full recorder take longer than a
    key may, and few of them are seen.
    """

    snapshot: Snapshot
    rank: Rank
    marks: Sequence[Mark]
    """The entries that match."""
    beside: Sequence[tuple[Rank, Sequence[Mark]]]
    count: str
    """How many entries match, or what is wrong with the filter."""
    wide: bool
    has_now: bool
    """Whether the last row says what is true since the newest entry."""

    def __len__(self) -> int:
        return len(self.marks) + self.has_now

    def moment(self, number: int) -> float:
        """When the entry of a row was made."""
        return self.marks[number].at_s if number < len(self.marks) else self.snapshot.now_s

    def at(self, moment_s: float) -> int:
        """The row of a moment: the newest entry that is not younger; -1 before the first one."""
        if self.has_now and moment_s + _SAME_S >= self.snapshot.now_s:
            return len(self.marks)
        return bisect_right(self.marks, moment_s + _SAME_S, key=lambda mark: mark.at_s) - 1

    def row(self, number: int) -> list[Line]:
        if number == len(self.marks):
            return _now_row(self.snapshot, self.rank)
        before_s = self.marks[number - 1].at_s if number else None
        return _table_row(self.marks[number], before_s, self.beside, self.wide)

    def part(self, at_s: float, rows: int) -> range:
        """The rows that are seen when the one of this moment is, a third of them after it."""
        end = min(len(self), max(rows, self.at(at_s) + 1 + rows // 3))
        return range(max(0, end - rows), end)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Cells for each column, whichever rows are made: moving must not move the columns."""
        details = (_event_and_detail(mark.entry)[1] for mark in self.marks)
        attrs = (_attrs(mark.entry) for mark in self.marks)
        least = (
            12, 8, 5, max([2 + width(mark.entry.phase) for mark in self.marks] or [0]),
            min(_DETAIL, max(map(width, details), default=0)),
            _beside_width(len(self.beside), self.wide),
            max(map(width, attrs), default=0),
        )  # fmt: skip
        now = [width(cell.plain) for cell in self.row(len(self.marks))] if self.has_now else least
        return tuple(max(sizes) for sizes in zip(least, now, map(len, HEADERS), strict=True))


def recorder(
    snapshot: Snapshot, view: View, group: Group, rank: Rank, typed: str, columns: int
) -> Recorder:
    """The entries of a rank that match what was typed."""
    marks = [mark for mark in marks_of(rank, snapshot.skews) if _wanted(mark, view, rank)]
    try:
        wanted = parse_filter(typed)
        kept, trouble = [mark for mark in marks if wanted.fits(_fields(mark))], ""
    except BadFilter as error:
        kept, trouble = marks, str(error)
    beside = [
        (other, marks_of(other, snapshot.skews)) for other in group.ranks[:9] if other is not rank
    ]
    count = trouble or f"{len(kept)} of {len(rank.entries)}"
    return Recorder(snapshot, rank, kept, beside, count, columns >= WIDE, not trouble and not typed)


def _now_row(snapshot: Snapshot, rank: Rank) -> list[Line]:
    """The end of the table: what is true since the newest entry."""
    first, *facts = [fact for fact in _since_facts(snapshot, rank) if fact]
    return [
        line((clock(snapshot.now_s), "muted")),
        line((f"{age_text(rank.still_s):>8}", "strong")),
        line(("…", "muted")),
        line((first, "strong")),
        line((facts[0] if facts else "", "strong")),
        line(("; ".join(facts[1:]), "muted")),
        line(""),
    ]


def _table_row(
    mark: Mark, before_s: float | None, beside: Sequence[tuple[Rank, Sequence[Mark]]], wide: bool
) -> list[Line]:
    entry = mark.entry
    event, detail = _event_and_detail(entry)
    role = "problem" if entry.phase == "error" else "cancel" if mark.is_supervisors else None
    colour = family(recorded_wait(entry, "RunnerRunning", ""), entry.phase)
    return [
        line((clock(mark.at_s), "muted")),
        line(f"{_delta(mark.at_s, before_s):>8}"),
        line((event, role)),
        line((f"{PATTERNS[colour]} ", colour), (entry.phase, role)),
        line((shorten(detail, _DETAIL), role)),
        line((_beside(mark, beside, wide), "muted")),
        line((_attrs(entry), "muted")),
    ]


def about_rank(rank: Rank, count: str) -> str:
    """The title of the table: whose entries these are."""
    full = ", older lost" if len(rank.entries) >= RECORDER_SIZE else ""
    alive = "" if rank.alive or rank.waiting else "DEAD  "
    return f"rank {rank.rank} on {rank.node} · {alive}{rank.status} · recorder {count}{full}"


def _wanted(mark: Mark, view: View, rank: Rank) -> bool:
    if not view.only_task or rank.task_id is None:
        return True
    return mark.entry.task_id == rank.task_id


def _fields(mark: Mark) -> dict[str, str]:
    entry = mark.entry
    named = {"phase": entry.phase, "event": entry.event, "detail": entry.detail or ""}
    return {**named, "": " ".join([*named.values(), _attrs(entry)])}


def _beside(mark: Mark, others: Sequence[tuple[Rank, Sequence[Mark]]], wide: bool) -> str:
    """What the other ranks did at that moment."""
    cells = [(other.rank, _at_moment(mark, marks)) for other, marks in others]
    if wide and len(cells) <= _BESIDE_WORDS:
        return " ".join(
            pad(shorten(f"r{rank} {_words(mark.entry, then)}", _WORD), _WORD)
            for rank, then in cells
        ).rstrip()
    return " ".join(f"r{rank}{_letter(mark.entry, then)}" for rank, then in cells)


def _beside_width(others: int, wide: bool) -> int:
    """Cells that hold what `_beside` says in any row."""
    return others * (_WORD + 1 if wide and others <= _BESIDE_WORDS else 4) - 1


def _at_moment(mark: Mark, marks: Sequence[Mark]) -> TimelineEntry | None:
    """The newest entry of another rank when this one was made."""
    index = bisect_right(marks, mark.at_s + _SAME_S, key=lambda other: other.at_s) - 1
    return marks[index].entry if index >= 0 else None


def _same_step(entry: TimelineEntry, other: TimelineEntry) -> bool:
    own = (entry.phase, entry.event, entry.detail)
    return own == (other.phase, other.event, other.detail)


def _letter(entry: TimelineEntry, then: TimelineEntry | None) -> str:
    """In one character: = for the same, else the fill of its lane."""
    if then is None:
        return " "
    return "=" if _same_step(entry, then) else recorded_wait(then, "RunnerRunning", "").value


_WORDS = {
    Wait.RECV: "waits data", Wait.SEND: "sent", Wait.GATHER: "gathers",
    Wait.BARRIER: "at barrier", Wait.AGREEMENT: "agrees", Wait.REST: "idle",
}  # fmt: skip


def _words(entry: TimelineEntry, then: TimelineEntry | None) -> str:
    """In a word or two."""
    if then is None:
        return "?"
    if _same_step(entry, then):
        return _difference(entry, then)
    phase = SHORT.get(then.phase, then.phase)
    return _WORDS.get(recorded_wait(then, "RunnerRunning", ""), phase[:11])


def _difference(entry: TimelineEntry, then: TimelineEntry) -> str:
    """`tokens=5` for `completion_tokens`: the row itself has the whole name."""
    for name, value in then.attrs.items():
        if name not in _OWN_ATTRS and entry.attrs.get(name) != value:
            return f"{name.rpartition('_')[2]}={_value(value)}"
    return "same"

"""One runner's flight recorder as lines, beside what the other ranks did. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from skulkctl.screen import pad
from skulkctl.tui.filters import BadFilter, parse_filter
from skulkctl.tui.lanes import RECORDER_SIZE, Mark, marks_of
from skulkctl.tui.lines import BLANK, Line, line, shorten, spread, to_ascii
from skulkctl.tui.shots import WIDE, Shot, View
from skulkctl.units import age_text, size_text
from skulkctl.verdict.ranks import Group, Rank, short_id
from skulkctl.verdict.waits import Wait, wait_of
from skulkctl.views.read import Document, size_bytes, text

_KEYS = "esc back   C capture   y raw   w write bundle   [ ] rank   g G top/end   c copy   q back"
_NARROW_KEYS = "esc back  C capture  y raw  w bundle  [ ] rank  g G ends  c copy  q back"


def tail(shot: Shot, view: View, rank: Rank, columns: int, rows: int) -> list[Line]:
    """The newest entries of the selected rank, under the lanes."""
    del view
    marks = marks_of(rank, shot.skews)
    kept = rows - 2
    shown = marks[-kept:] if kept > 0 else []
    title = f"─ rank {rank.rank} recorder: last {len(shown)} of {len(marks)}, enter opens it "
    lines = [line((title + "─" * max(0, columns - len(title)), "muted"))]
    before = marks[-len(shown) - 1].at_s if len(marks) > len(shown) else None
    for mark in shown:
        lines.append(entry_line(mark, before, columns))
        before = mark.at_s
    return [*lines, _nothing_since(shot, rank)][:rows]


def entry_line(
    mark: Mark, before_s: float | None, columns: int, *, attrs: bool = True, tight: bool = False
) -> Line:
    """`time  delta  event  phase  detail  attributes`."""
    entry = mark.entry
    told = _attrs(entry) if attrs else ""
    event, detail = text(entry, "event") or "", text(entry, "detail") or ""
    if event not in ("enter", "exit"):
        event, detail = "event", f"{event} {detail}".rstrip()
    phase = text(entry, "phase") or ""
    # The longest name of a phase has 23 letters; a narrow screen has no room for it.
    cells = 23 if columns >= WIDE else 17
    named = pad(shorten(phase, cells), cells)
    body = f"{event:<6} {detail or phase}" if tight else f"{event:<6} {named} {detail}"
    words = f"{clock(mark.at_s)}  {_delta(mark.at_s, before_s):>8}  {body}  {told}"
    role = "problem" if entry.get("phase") == "error" else "attention" if mark.is_order else None
    return line((f"  {words}".rstrip(), role)).cut(columns)


def clock(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M:%S.%f")[:12]


def _delta(at_s: float, before_s: float | None) -> str:
    return "" if before_s is None else f"+{at_s - before_s:.3f}"


def _attrs(entry: Document) -> str:
    attrs = entry.get("attrs")
    if not isinstance(attrs, Mapping):
        return ""
    return " ".join(f"{name}={_value(value)}" for name, value in attrs.items())


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _nothing_since(shot: Shot, rank: Rank) -> Line:
    told = ["nothing recorded yet" if rank.last is None else "nothing since"]
    if rank.now:
        told.append(rank.now)
    told += [f"its {why} is {clock(shot.now_s + in_s)[:8]}Z" for in_s, why in _limits(shot, rank)]
    memory = _memory(shot, rank)
    if memory:
        told.append(memory)
    words = f"  {clock(shot.now_s)}  {age_text(rank.still_s):>8}  ...    {'; '.join(told)}"
    return line((words, "muted"))


def _limits(shot: Shot, rank: Rank) -> list[tuple[float, str]]:
    """What ends this rank, as the verdict says it: the two must never differ."""
    found = shot.judgement.of(rank.instance_id)
    deadlines = () if found is None else found.deadlines
    return [(one.in_s, one.why) for one in deadlines if rank.rank in one.ranks]


def _memory(shot: Shot, rank: Rank) -> str:
    from skulkctl.views.read import mapping, sequence

    for runner in sequence(shot.timeline, "runners"):
        if text(runner, "runnerId") == rank.runner_id:
            found = mapping(runner, "lastMlxMemory")
            parts = [(name, size_bytes(found, name)) for name in ("active", "cache", "peak")]
            told = [f"{size_text(size)} {name}" for name, size in parts if size is not None]
            return f"MLX {', '.join(told)}" if told else ""
    return ""


def recorder_page(
    shot: Shot, view: View, group: Group, rank: Rank, columns: int, rows: int, top: int
) -> list[Line]:
    """The drill-down: every entry of one rank, from line `top` on."""
    marks = [mark for mark in marks_of(rank, shot.skews) if _wanted(mark, view, rank)]
    try:
        wanted = parse_filter(view.filter)
        kept, trouble = [mark for mark in marks if wanted.fits(_fields(mark))], ""
    except BadFilter as error:
        kept, trouble = marks, str(error)
    lines = [_head(shot, view, group, rank, columns), _chips(view, rank, kept, trouble)]
    others = [one for one in group.ranks if one is not rank] if view.other_ranks else []
    wide = columns >= WIDE
    left = columns - min(len(others) * (15 if wide else 4) + 1, columns // 2)
    beside = [(one, marks_of(one, shot.skews)) for one in others]
    titles = pad(f"  at            delta     rank {rank.rank}", left)
    skew = f" ({shot.skew_text})" if shot.skew_text else ""
    cells = columns - left
    beneath = next(
        one for one in (f"other ranks then{skew}", "other ranks", "others", "") if len(one) <= cells
    )
    lines.append(line((titles + (beneath if others else ""), "muted")))
    room = rows - len(lines) - 2
    for mark, before_s in _with_before(kept)[top : top + room]:
        own = entry_line(mark, before_s, left - 1, attrs=view.attrs, tight=bool(others))
        told = _beside(mark, beside, wide)
        filled = line(*own.pieces, " " * (left - len(own.plain)), (told, "muted"))
        lines.append(filled if others else own)
    lines += [BLANK] * (rows - 2 - len(lines))
    keys = _KEYS if wide else _NARROW_KEYS
    if view.offline:
        for key in ("C capture   ", "w write bundle   ", "C capture  ", "w bundle  "):
            keys = keys.replace(key, "")
    lines = [*lines[: rows - 2], _nothing_since(shot, rank), line((f" {keys}", "muted"))]
    shown = [one.cut(columns) for one in lines]
    return [to_ascii(one) for one in shown] if view.ascii else shown


def recorder_length(shot: Shot, view: View, rank: Rank) -> int:
    """How many entries there are to scroll through."""
    marks = [mark for mark in marks_of(rank, shot.skews) if _wanted(mark, view, rank)]
    try:
        wanted = parse_filter(view.filter)
    except BadFilter:
        return len(marks)
    return sum(1 for mark in marks if wanted.fits(_fields(mark)))


def _wanted(mark: Mark, view: View, rank: Rank) -> bool:
    if not view.only_task or rank.task_id is None:
        return True
    return mark.entry.get("taskId") == rank.task_id


def _fields(mark: Mark) -> dict[str, str]:
    entry = mark.entry
    named = {name: text(entry, name) or "" for name in ("phase", "event", "detail")}
    return {**named, "": " ".join([*named.values(), _attrs(entry)])}


def _with_before(marks: Sequence[Mark]) -> list[tuple[Mark, float | None]]:
    before: list[float | None] = [None, *(mark.at_s for mark in marks)]
    return list(zip(marks, before, strict=False))


def _head(shot: Shot, view: View, group: Group, rank: Rank, columns: int) -> Line:
    trail = f" {shot.context or 'timeline'} > {group.short} > rank {rank.rank} @ {rank.node}"
    full = len(rank.entries) >= RECORDER_SIZE
    told = f"{'alive' if rank.alive else 'DEAD'}  {rank.status}  {len(rank.entries)} kept"
    told += ", older lost" if full and columns >= WIDE else ""
    if view.paused_at:
        told += f"  PAUSED {view.paused_at}"
    role = "strong" if rank.alive else "problem"
    return spread(f"{trail} > recorder", f"{told} ", columns, role)


def _chips(view: View, rank: Rank, kept: Sequence[Mark], trouble: str) -> Line:
    chip = trouble or f"({len(kept)} of {len(rank.entries)})"
    typed = f" /{view.filter} " if view.filter else " "
    task = f"   o only task {short_id(rank.task_id)}: {_on(view.only_task)}" if rank.task_id else ""
    ranks, attrs = _on(view.other_ranks), _on(view.attrs)
    return line(
        (f"{typed}{chip}", "selected"), f"   m other ranks: {ranks}   a attrs: {attrs}{task}"
    )


def _on(flag: bool) -> str:
    return "on" if flag else "off"


def _beside(mark: Mark, others: Sequence[tuple[Rank, Sequence[Mark]]], wide: bool) -> str:
    if wide:
        return " ".join(pad(f"r{one.rank} {_then(mark, own)}", 14) for one, own in others).rstrip()
    return " ".join(f"r{one.rank}{_letter(mark, own)}" for one, own in others)


def _letter(mark: Mark, marks: Sequence[Mark]) -> str:
    """The same in one character: = for the same, else the fill of its lane."""
    last = next((one for one in reversed(marks) if one.at_s <= mark.at_s + 0.0005), None)
    if last is None:
        return " "
    keys = ("phase", "event", "detail")
    same = all(last.entry.get(key) == mark.entry.get(key) for key in keys)
    return "=" if same else wait_of(last.entry, "RunnerRunning", "").value


def _then(mark: Mark, marks: Sequence[Mark]) -> str:
    """What another rank was doing at that moment, in a word or two."""
    last = next((one for one in reversed(marks) if one.at_s <= mark.at_s + 0.0005), None)
    if last is None:
        return "?"
    same = ("phase", "event", "detail")
    if all(last.entry.get(name) == mark.entry.get(name) for name in same):
        return (
            "same"
            if last.entry.get("attrs") == mark.entry.get("attrs")
            else _difference(mark.entry, last.entry)
        )
    wait = wait_of(last.entry, "RunnerRunning", "")
    short = {
        Wait.RECV: "waits data", Wait.SEND: "sent", Wait.GATHER: "gathers",
        Wait.BARRIER: "at barrier", Wait.AGREEMENT: "agrees", Wait.REST: "idle",
    }  # fmt: skip
    return short.get(wait, (text(last.entry, "phase") or "?")[:11])


def _difference(one: Document, other: Document) -> str:
    first, second = one.get("attrs"), other.get("attrs")
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return "same"
    own = {"rank", "src", "dst", "elapsed_ms", "wait_seconds", "shape"}
    for name, value in second.items():
        if name not in own and first.get(name) != value:
            return f"{name}={_value(value)}"
    return "same"

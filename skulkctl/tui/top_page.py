"""`skulkctl top` as lines: nodes with memory and GPU, runners with phase and tokens/s. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skulkctl.layout import GUTTER, Cells, cell_lines, fit, without_owner
from skulkctl.nodes.rows import LOST, NodeItem, lost_since_text
from skulkctl.placement.instances import OPEN
from skulkctl.placement.requests import request_items
from skulkctl.screen import pad
from skulkctl.tables import EMPTY
from skulkctl.tui.banner import ROLES
from skulkctl.tui.lanes import marks_of
from skulkctl.tui.lines import BLANK, Line, line, spread, to_ascii
from skulkctl.tui.shots import WIDE, Shot, View
from skulkctl.units import age_text, size_text
from skulkctl.verdict import PROBLEMS
from skulkctl.verdict.ranks import Group, Rank
from skulkctl.views.read import Document, integer, number, text
from skulkd.wire.ids import NodeId

if TYPE_CHECKING:
    from skulkctl.daemon.state import ClusterState
    from skulkd.wire.machine import SystemPerformanceProfile

WINDOW_S = 10.0
"""Tokens per second are those of the last seconds."""
_BAR = 12


def tokens_per_second(rank: Rank, skews: Mapping[str, float], now_s: float) -> float | None:
    """How fast this rank decodes, by its own progress entries; None when it does not."""
    speeds: dict[object, list[tuple[float, int]]] = {}
    for mark in marks_of(rank, skews):
        tokens = integer(mark.entry, "attrs", "completion_tokens")
        if mark.entry.get("event") == "decode_token_progress" and tokens is not None:
            speeds.setdefault(mark.entry.get("taskId"), []).append((mark.at_s, tokens))
    found = [
        (last[1] - first[1]) / (last[0] - first[0])
        for first, last in ((marks[-min(len(marks), 5)], marks[-1]) for marks in speeds.values())
        if last[0] > first[0] and now_s - last[0] <= WINDOW_S
    ]
    return sum(found) if found else None


def top_items(shot: Shot, nodes: Sequence[NodeItem], state: ClusterState) -> dict[str, object]:
    """Everything that is shown, as data."""
    runners = [
        {
            "instanceId": group.instance_id,
            "modelId": group.model_id,
            "rank": rank.rank,
            "node": rank.node,
            "status": rank.status.removeprefix("Runner"),
            "phase": rank.phase,
            "waiting": None if rank.waiting is None else rank.waiting.document(),
            "doing": rank.phase if rank.waiting is None else rank.waiting.short,
            "secondsInPhase": rank.in_phase_s,
            "tokensPerSecond": tokens_per_second(rank, shot.skews, shot.now_s),
            "verdict": str(shot.finding(group).state),
        }
        for group in shot.groups
        for rank in group.ranks
    ]
    return {
        "tokensPerSecond": _total_speed(shot, state),
        "nodes": [_node(node, state) for node in nodes],
        "runners": runners,
    }


def _total_speed(shot: Shot, state: ClusterState) -> float | None:
    """What rank 0 of each instance measures; None while work goes on and nobody measures it."""
    firsts = [group.ranks[0] for group in shot.groups if group.ranks]
    speeds = [tokens_per_second(rank, shot.skews, shot.now_s) for rank in firsts]
    known = [speed for speed in speeds if speed is not None]
    return None if not known and _is_busy(shot.groups, state) else sum(known)


def _is_busy(groups: Sequence[Group], state: ClusterState) -> bool:
    if any(task["status"] in OPEN for task in request_items(state)):
        return True
    return any(rank.status == "RunnerRunning" for group in groups for rank in group.ranks)


def _node(node: NodeItem, state: ClusterState) -> dict[str, object]:
    system, memory = state.node_system.get(NodeId(node["id"])), node["memory"]
    is_lost = node["health"] == LOST
    return {
        "name": node["name"],
        "health": node["health"],
        "lostSince": node["lastSeen"] if is_lost else None,
        "lostSeconds": node["seenSecondsAgo"] if is_lost else None,
        "draining": node["draining"],
        "memoryTotalBytes": memory["totalBytes"] if memory else None,
        "memoryUsedBytes": memory["totalBytes"] - memory["availableBytes"] if memory else None,
        "gpuPercent": _gpu_percent(system),
        "cpuPercent": system.pcpu_usage if system else None,
        "powerWatts": system.sys_power if system else None,
    }


def _gpu_percent(system: SystemPerformanceProfile | None) -> float | None:
    if system is None:
        return None
    ratio = system.accelerator.utilization_ratio if system.accelerator else None
    return system.gpu_usage if ratio is None else ratio * 100


def top_page(
    shot: Shot, view: View, items: Mapping[str, object], columns: int, rows: int | None
) -> list[Line]:
    """The whole screen. `rows` None: as long as it needs to be."""
    worst = shot.judgement.worst
    fresh = shot.replay or ("NO ANSWER" if shot.trouble else f"LIVE {shot.every_s:g} s")
    speed = _decimal(number(items, "tokensPerSecond"))
    left = f" top  {shot.context + '  ' if shot.context else ''}{speed} tokens/s"
    lines = [spread(left, f"{fresh}  age {age_text(shot.age_s)} ", columns, "strong")]
    lines.append(line((f" {worst.state}", ROLES[worst.state]), f"  {' '.join(worst.says)}"))
    lines += _lost_lines(_list(items, "nodes"))
    lines += [BLANK, *_node_lines(_list(items, "nodes"), columns)]
    lines += [BLANK, *_runner_lines(_list(items, "runners"), columns)]
    if rows is not None:
        lines = [*lines[: rows - 1], *[BLANK] * (rows - 1 - len(lines))]
        lines.append(line((" ? help   t timeline   r refresh   p pause   q quit", "muted")))
    shown = [one.cut(columns) for one in lines]
    return [to_ascii(one) for one in shown] if view.ascii else shown


def _lost_lines(nodes: Sequence[Document]) -> list[Line]:
    """The verdict is about runners only; a lost node is a problem, too."""
    return [
        line((" NODE LOST", "problem"), f"  {text(node, 'name')} {_lost_since(node)}")
        for node in nodes
        if node.get("health") == LOST
    ]


def _lost_since(node: Document) -> str:
    return lost_since_text(str(node["lostSince"]), number(node, "lostSeconds") or 0.0)


def _list(items: Mapping[str, object], name: str) -> list[Document]:
    found = items.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _table(
    cells: Sequence[Cells], columns: int, roles: Sequence[Sequence[str | None]]
) -> list[Line]:
    """A header and one line per row; `roles` are the colours of a row's cells, by column."""
    layout = fit(cells, columns - 1)
    if layout is None:
        shown, widths = tuple(cells), tuple(one.natural for one in cells)
    else:
        shown, widths = layout.columns, layout.widths
    names = [one.header for one in cells]
    header = [pad(one.header, size, one.right) for one, size in zip(shown, widths, strict=True)]
    lines = [line((f" {GUTTER.join(header)}", "muted"))]
    for row, colours in enumerate(roles):
        pieces: list[tuple[str, str | None]] = []
        for one, size in zip(shown, widths, strict=True):
            [text_, *_] = cell_lines(one, row, size)
            gap = GUTTER if pieces else " "
            pieces += [(gap, None), (pad(text_, size, one.right), colours[names.index(one.header)])]
        lines.append(line(*pieces))
    return lines


def _column(header: str, texts: Sequence[str], **how: Any) -> Cells:
    is_empty = bool(texts) and set(texts) == {EMPTY}
    return Cells(header, tuple(texts), is_empty=is_empty, **how)


def _node_lines(nodes: Sequence[Document], columns: int) -> list[Line]:
    health = [_health(node) for node in nodes]
    cells = [
        _column("node", [text(node, "name") or "?" for node in nodes]),
        _column("health", health),
        _column("memory", [_memory(node, columns) for node in nodes]),
        _column("gpu", [_gpu(node) for node in nodes], spare=1),
        _column("cpu", [_percent(number(node, "cpuPercent")) for node in nodes], spare=2),
    ]
    colours = {"ok": "ok", "warn": "attention", "draining": "attention"}
    roles = [[None, colours.get(word, "problem"), None, None, None] for word in health]
    return _table(cells, columns, roles)


def _health(node: Document) -> str:
    health = text(node, "health") or EMPTY
    return "draining" if node.get("draining") and health == "ok" else health


def _memory(node: Document, columns: int) -> str:
    used, total = integer(node, "memoryUsedBytes"), integer(node, "memoryTotalBytes")
    if used is None or not total:
        return EMPTY
    both = f"{size_text(used, '')}/{size_text(total, '')}"
    return f"{_bar(used / total)} {both if columns >= WIDE else f'{used / total:.0%}'}"


def _gpu(node: Document) -> str:
    gpu = number(node, "gpuPercent")
    return EMPTY if gpu is None else f"{_bar(gpu / 100)} {gpu:.0f}%"


def _percent(value: float | None) -> str:
    return EMPTY if value is None else f"{value:.0f}%"


def _decimal(value: float | None) -> str:
    return EMPTY if value is None else f"{value:.1f}"


def _bar(share: float) -> str:
    full = round(min(max(share, 0.0), 1.0) * _BAR)
    return "▮" * full + "▯" * (_BAR - full)


def _runner_lines(runners: Sequence[Document], columns: int) -> list[Line]:
    def texts(key: str) -> list[str]:
        return [str(one.get(key)) for one in runners]

    ages = [age_text(number(one, "secondsInPhase") or 0) for one in runners]
    speeds = [_decimal(number(one, "tokensPerSecond")) for one in runners]
    cells = [
        _column("model", [text(one, "modelId") or "?" for one in runners], short=without_owner),
        _column("rank", texts("rank")),
        _column("node", texts("node")),
        _column("status", texts("status"), spare=2),
        _column("doing", texts("doing"), spare=1),
        _column("in", ages, right=True, spare=3),
        # Also without a value it belongs there: it says that the speed is not known.
        Cells("tok/s", tuple(speeds), right=True),
    ]
    wrong = [text(one, "verdict") in PROBLEMS for one in runners]
    roles = [["problem" if bad else None] * len(cells) for bad in wrong]
    return _table(cells, columns, roles)

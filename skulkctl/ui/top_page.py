"""`skulkctl top` as lines: nodes with memory and GPU, runners with phase and tokens/s. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from skulkctl.nodes.rows import LOST, NodeItem, lost_since_text
from skulkctl.output.layout import GUTTER, Cells, cell_lines, fit, without_owner
from skulkctl.output.tables import EMPTY
from skulkctl.output.terminal import pad
from skulkctl.output.units import age_text, size_text
from skulkctl.ui.banner import SYMBOLS
from skulkctl.ui.history import gpu_percent
from skulkctl.ui.lines import BLANK, Line, bar, fit_lines, line, spread
from skulkctl.ui.rates import tokens_per_second, total_speed
from skulkctl.ui.snapshot import WIDE, Snapshot, View
from skulkctl.verdict import PROBLEMS
from skulkctl.verdict.ranks import Group, Rank
from skulkctl.verdict.waits import waiting_label
from skulkd.wire.ids import NodeId

if TYPE_CHECKING:
    from skulkctl.daemon.state import ClusterState

_BAR = 12


class TopRunnerItem(TypedDict):
    instanceId: str
    modelId: str
    rank: int
    node: str
    status: str
    phase: str
    waiting: dict[str, object] | None
    doing: str
    secondsInPhase: float
    tokensPerSecond: float | None
    verdict: str


class TopNodeItem(TypedDict):
    name: str
    health: str | None
    lostSince: str | None
    lostSeconds: float | None
    draining: bool | None
    memoryTotalBytes: int | None
    memoryUsedBytes: int | None
    gpuPercent: float | None
    cpuPercent: float | None
    powerWatts: float | None


class TopItem(TypedDict):
    """What `skulkctl top -o json` prints."""

    tokensPerSecond: float | None
    nodes: list[TopNodeItem]
    runners: list[TopRunnerItem]


def top_items(snapshot: Snapshot, nodes: Sequence[NodeItem], state: ClusterState) -> TopItem:
    """Everything that is shown, as data."""
    return {
        "tokensPerSecond": total_speed(snapshot, state),
        "nodes": [_node(node, state) for node in nodes],
        "runners": [
            _runner(group, rank, snapshot) for group in snapshot.groups for rank in group.ranks
        ],
    }


def _runner(group: Group, rank: Rank, snapshot: Snapshot) -> TopRunnerItem:
    waiting = rank.waiting
    return {
        "instanceId": group.instance_id,
        "modelId": group.model_id,
        "rank": rank.rank,
        "node": rank.node,
        "status": rank.status.removeprefix("Runner"),
        "phase": rank.phase,
        "waiting": None if waiting is None else waiting.model_dump(),
        "doing": rank.phase if waiting is None else waiting_label(waiting),
        "secondsInPhase": rank.in_phase_s,
        "tokensPerSecond": tokens_per_second(rank, snapshot.skews, snapshot.now_s),
        "verdict": str(snapshot.finding(group).state),
    }


def _node(node: NodeItem, state: ClusterState) -> TopNodeItem:
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
        "gpuPercent": gpu_percent(system),
        "cpuPercent": system.pcpu_usage if system else None,
        "powerWatts": system.sys_power if system else None,
    }


def top_page(snapshot: Snapshot, view: View, items: TopItem, columns: int) -> list[Line]:
    """The page as `--once` prints it."""
    worst = snapshot.verdict.worst
    fresh = snapshot.replay or ("NO ANSWER" if snapshot.trouble else f"LIVE {snapshot.every_s:g} s")
    context = f"{snapshot.context}  " if snapshot.context else ""
    left = f" top  {context}{_decimal(items['tokensPerSecond'])} tokens/s"
    lines = [spread(left, f"{fresh}  age {age_text(snapshot.age_s)} ", columns, "strong")]
    symbol, role = SYMBOLS[worst.state]
    lines.append(line((f" {symbol} {worst.state}", role), f"  {worst.summary}"))
    named = worst.culprit.node if worst.culprit is not None else None
    lines += _lost_lines(node for node in items["nodes"] if node["name"] != named)
    lines += [BLANK, *_node_lines(items["nodes"], columns)]
    lines += [BLANK, *_runner_lines(items["runners"], columns)]
    return fit_lines(lines, columns, view.ascii)


def _lost_lines(nodes: Iterable[TopNodeItem]) -> list[Line]:
    """The headline names one problem; every lost node is shown beside it."""
    return [
        line((" NODE LOST", "problem"), f"  {node['name']} {_lost_since(node)}")
        for node in nodes
        if node["health"] == LOST
    ]


def _lost_since(node: TopNodeItem) -> str:
    return lost_since_text(str(node["lostSince"]), node["lostSeconds"] or 0.0)


def _table(
    cells: Sequence[Cells], columns: int, roles: Sequence[Sequence[str | None]]
) -> list[Line]:
    """A header and one line per row; `roles` are the colours of a row's cells, by column."""
    layout = fit(cells, columns - 1)
    if layout is None:
        shown, widths = tuple(cells), tuple(column.natural for column in cells)
    else:
        shown, widths = layout.columns, layout.widths
    names = [column.header for column in cells]
    columns_shown = list(zip(shown, widths, strict=True))
    header = [pad(column.header, size, column.right) for column, size in columns_shown]
    lines = [line((f" {GUTTER.join(header)}", "muted"))]
    for row, colours in enumerate(roles):
        pieces: list[tuple[str, str | None]] = []
        for column, size in columns_shown:
            [text, *_] = cell_lines(column, row, size)
            colour = colours[names.index(column.header)]
            gap = GUTTER if pieces else " "
            pieces += [(gap, None), (pad(text, size, column.right), colour)]
        lines.append(line(*pieces))
    return lines


def _column(header: str, texts: Sequence[str], **how: Any) -> Cells:
    is_empty = bool(texts) and set(texts) == {EMPTY}
    return Cells(header, tuple(texts), is_empty=is_empty, **how)


def _node_lines(nodes: Sequence[TopNodeItem], columns: int) -> list[Line]:
    health = [_health(node) for node in nodes]
    cells = [
        _column("node", [node["name"] for node in nodes]),
        _column("health", health),
        _column("memory", [_memory(node, columns) for node in nodes]),
        _column("gpu", [_gpu(node["gpuPercent"]) for node in nodes], spare=1),
        _column("cpu", [_percent(node["cpuPercent"]) for node in nodes], spare=2),
    ]
    colours = {"ok": "ok", "warn": "attention", "draining": "attention"}
    roles = [[None, colours.get(word, "problem"), None, None, None] for word in health]
    return _table(cells, columns, roles)


def _health(node: TopNodeItem) -> str:
    health = node["health"] or EMPTY
    return "draining" if node["draining"] and health == "ok" else health


def _memory(node: TopNodeItem, columns: int) -> str:
    used, total = node["memoryUsedBytes"], node["memoryTotalBytes"]
    if used is None or not total:
        return EMPTY
    both = f"{size_text(used, '')}/{size_text(total, '')}"
    return f"{_bar(used / total)} {both if columns >= WIDE else f'{used / total:.0%}'}"


def _gpu(percent: float | None) -> str:
    return EMPTY if percent is None else f"{_bar(percent / 100)} {percent:.0f}%"


def _percent(value: float | None) -> str:
    return EMPTY if value is None else f"{value:.0f}%"


def _decimal(value: float | None) -> str:
    return EMPTY if value is None else f"{value:.1f}"


def _bar(share: float) -> str:
    return "".join(text for text, _ in bar(share, _BAR, ""))


def _runner_lines(runners: Sequence[TopRunnerItem], columns: int) -> list[Line]:
    speeds = [_decimal(runner["tokensPerSecond"]) for runner in runners]
    ages = [age_text(runner["secondsInPhase"]) for runner in runners]
    cells = [
        _column("model", [runner["modelId"] or "?" for runner in runners], short=without_owner),
        _column("rank", [str(runner["rank"]) for runner in runners]),
        _column("node", [runner["node"] for runner in runners]),
        _column("status", [runner["status"] for runner in runners], spare=2),
        _column("doing", [runner["doing"] for runner in runners], spare=1),
        _column("in", ages, right=True, spare=3),
        # Without a value it stays, too: it says that the speed is not known.
        Cells("tok/s", tuple(speeds), right=True),
    ]
    wrong = [runner["verdict"] in PROBLEMS for runner in runners]
    roles = [["problem" if bad else None] * len(cells) for bad in wrong]
    return _table(cells, columns, roles)

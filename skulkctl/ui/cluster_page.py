"""The cluster as lines: alarms, totals, a card for each node, links, instances. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skulkctl.nodes.rows import LOST, NO_ANSWER, NodeItem, lost_since_text
from skulkctl.output.terminal import pad
from skulkctl.output.units import age_text, size_text
from skulkctl.ui.banner import SYMBOLS
from skulkctl.ui.history import History, gpu_percent
from skulkctl.ui.lines import BLANK, Line, Piece, bar, line, shorten, spark, stacked_bar
from skulkctl.ui.rates import model_bytes, total_speed
from skulkctl.verdict import State
from skulkd.wire.ids import NodeId

if TYPE_CHECKING:
    from skulkctl.timeline.frames import Cluster
    from skulkctl.ui.plots import Series
    from skulkctl.ui.snapshot import Snapshot
    from skulkd.wire.machine import SystemPerformanceProfile

HEALTH = {
    "ok": ("●", "ok"),
    "warn": ("▲", "attention"),
    "error": ("✖", "problem"),
    NO_ANSWER: ("✖", "problem"),
    LOST: ("✖", "problem"),
}
DENSE = 9
"""From this many nodes on, cards are small."""
LOW_DISK = 0.1
_KINDS = {"thunderbolt": "═", "ethernet": "─", "maybe_ethernet": "─", "wifi": "╌", "unknown": "─"}
_SLOW_MS = 10.0


@dataclass(frozen=True)
class Card:
    """What is on the frame of a node's card, and in it."""

    node_id: str
    title: str
    subtitle: str
    role: str
    lines: tuple[Line, ...]


def health_of(node: NodeItem) -> tuple[str, str, str]:
    """Symbol, role and word."""
    word = node["health"] or "starting"
    if node["draining"] and word == "ok":
        return "▲", "attention", "draining"
    symbol, role = HEALTH.get(word, ("◌", "waiting"))
    return symbol, role, word


def alarm_lines(snapshot: Snapshot) -> list[Line]:
    """What needs attention, the most urgent first; one quiet line when nothing does."""
    lines = [
        line((f" {symbol} {words}", role), f"  {text}")
        for symbol, role, words, text in _alarms(snapshot)
    ]
    if lines:
        return lines
    worst = snapshot.verdict.worst
    symbol, role = SYMBOLS[worst.state]
    return [line((f" {symbol} {worst.state}", role), f"  {worst.summary}")]


def _alarms(snapshot: Snapshot) -> Iterator[tuple[str, str, str, str]]:
    for finding in snapshot.verdict.findings:
        if finding.state is not State.OK:
            symbol, role = SYMBOLS[finding.state]
            yield symbol, role, str(finding.state), finding.summary
    for node in snapshot.cluster.nodes if snapshot.cluster else ():
        if node["health"] == LOST:
            since = lost_since_text(str(node["lastSeen"]), node["seenSecondsAgo"] or 0.0)
            yield "✖", "problem", "NODE LOST", f"{node['name']} {since}"
        elif node["health"] == NO_ANSWER:
            yield "✖", "problem", NO_ANSWER, f"{node['name']}: {node['error'] or 'no reason given'}"
        for reason in node["reasons"]:
            symbol, role, word = health_of(node)
            yield symbol, role, word, f"{node['name']}: {reason.get('message') or reason}"


def totals_line(snapshot: Snapshot, history: History, columns: int) -> Line:
    """The whole cluster in one line."""
    cluster = snapshot.cluster
    if cluster is None:
        return BLANK
    speed = total_speed(snapshot, cluster.state)
    there = [node for node in cluster.nodes if node["health"] not in (LOST, NO_ANSWER)]
    missing = len(cluster.nodes) - len(there)
    total = None if cluster.load is None else cluster.load.total
    work = "" if total is None else f"{total.active_jobs} active · {total.queued_jobs} queued   "
    cells = max(8, min(40, columns - 90))
    return line(
        (f" {'–' if speed is None else f'{speed:.0f}'} tok/s ", "strong"),
        (spark(history.of("tokens"), cells), "compute"),
        f"   {work}",
        (f"{len(there)} of {len(cluster.nodes)} nodes", "problem" if missing else "ok"),
        f"   {_count(len(cluster.state.instances), 'instance')}   ",
        *_memory_total(cluster),
    )


def total_series(history: History, cluster: Cluster) -> list[Series]:
    """What is plotted of the whole cluster since the application was opened."""
    whole = sum(node["memory"]["totalBytes"] for node in cluster.nodes if node["memory"])
    tops = {"cpu": 100.0, "memory": whole / (1 << 30)}
    names = (
        ("tokens", "tokens/s", ""), ("requests", "requests, active and queued", ""),
        ("cpu", "CPU, mean of the nodes", " %"), ("memory", "memory in use", " GiB"),
    )  # fmt: skip
    found = [(label, unit, history.of(kind), tops.get(kind)) for kind, label, unit in names]
    return [
        (f"{label} · {values[-1]:.0f}{unit} · highest {max(values):.0f}{unit}", values, top)
        for label, unit, values, top in found
        if values
    ]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _memory_total(cluster: Cluster) -> list[Piece | str]:
    memories = [node["memory"] for node in cluster.nodes if node["memory"]]
    free = sum(memory["availableBytes"] for memory in memories)
    whole = sum(memory["totalBytes"] for memory in memories)
    return [f"{size_text(free)} of {size_text(whole)} free"] if whole else []


def cards(snapshot: Snapshot, history: History, columns: int) -> list[Card]:
    """A card for each node; with many nodes only what matters most."""
    cluster = snapshot.cluster
    if cluster is None:
        return []
    held: dict[str, int] = {}
    for group in snapshot.groups:
        for rank in group.ranks:
            held[rank.node_id] = held.get(rank.node_id, 0) + model_bytes(rank)
    dense = len(cluster.nodes) >= DENSE
    return [
        _card(node, cluster, history, held.get(node["id"], 0), columns, dense)
        for node in cluster.nodes
    ]


def _card(
    node: NodeItem, cluster: Cluster, history: History, models: int, columns: int, dense: bool
) -> Card:
    symbol, role, word = health_of(node)
    crown = "♛ " if node["role"] == "master" else ""
    title = f"{crown}{shorten(node['name'], max(6, columns - len(word) - 8))}  {symbol} {word}"
    if node["health"] == LOST:
        return Card(node["id"], title, "", role, tuple(_lost_lines(node)))
    system = cluster.state.node_system.get(NodeId(node["id"]))
    lines = [
        *_memory_lines(node, models, columns, dense),
        *_use_lines(node, system, history, columns),
    ]
    if not dense:
        lines += _disk_lines(node, columns)
    return Card(node["id"], title, _facts(node, columns), role, tuple(lines))


def _lost_lines(node: NodeItem) -> list[Line]:
    return [
        line((f"last seen {str(node['lastSeen'])[11:19]}Z", "problem")),
        line(f"{age_text(node['seenSecondsAgo'] or 0.0)} ago"),
        line(("it left without notice", "muted")),
        line((f"forget: skulkctl nodes forget {node['name']}", "muted")),
    ]


def _facts(node: NodeItem, columns: int) -> str:
    """Version, uptime and round trip, as far as there is room.

    They are told coarsely: another frame means that the whole card is painted again.
    """
    up, trip_ms = node["uptimeSeconds"], node["roundTripMs"]
    facts = [
        f"up {age_text(up - up % 60) if up >= 60 else '<1m'}" if up is not None else "",
        "" if trip_ms is None else f"{trip_ms:.0f} ms" if trip_ms >= 1 else "<1 ms",
        node["version"] or "",
    ]
    kept = ""
    for fact in facts:
        longer = f"{kept} · {fact}" if kept and fact else kept or fact
        kept = longer if len(longer) <= columns - 4 else kept
    return kept


def _memory_lines(node: NodeItem, models: int, columns: int, dense: bool) -> list[Line]:
    memory = node["memory"]
    if memory is None:
        return [line(("memory  not measured", "muted"))]
    free, whole = memory["availableBytes"], memory["totalBytes"]
    models = min(models, whole - free)
    other = max(0, whole - free - models)
    text = f" {size_text(whole - free, '')}/{size_text(whole, '')}"
    cells = max(4, columns - 5 - len(text))
    parts = [
        (float(models), "█", "accent"),
        (float(other), "▒", "other"),
        (float(free), "░", "muted"),
    ]
    first = line(("mem  ", "muted"), *stacked_bar(parts, cells), text)
    if dense:
        return [first]
    return [
        first,
        line(
            (f"models {_short(models)}", "accent"), " ",
            (f"other {_short(other)}", "other"), " ",
            (f"free {_short(free)}", "muted"),
        ),
    ]  # fmt: skip


def _short(size_bytes: int) -> str:
    """`344M`, `1.7G`: three of them fit into a card."""
    text = size_text(size_bytes, "").replace("iB", "")
    return text if len(text) <= 5 else text.partition(".")[0] + text[-1]


def _use_lines(
    node: NodeItem, system: SystemPerformanceProfile | None, history: History, columns: int
) -> list[Line]:
    """CPU and accelerator over the last minutes, with what else was measured."""
    if system is None:
        return [line(("cpu  not measured", "muted"))]
    extras = [
        f"{system.temp:.0f} °C" if system.temp is not None else "",
        f"{system.sys_power:.0f} W" if system.sys_power is not None else "",
    ]
    found = [("cpu", system.pcpu_usage), ("gpu", gpu_percent(system))]
    measured = [(name, value) for name, value in found if value is not None]
    lines = []
    for number, (name, value) in enumerate(measured):
        more = "  ".join(extra for extra in extras if extra) if number + 1 == len(measured) else ""
        tail = f" {value:3.0f} %  {more}".rstrip()
        cells = max(4, columns - 5 - len(tail))
        drawn = spark(history.of(name, node["name"]), cells, 100.0)
        lines.append(line((f"{name}  ", "muted"), (drawn, "compute"), tail))
    return lines


def _disk_lines(node: NodeItem, columns: int) -> list[Line]:
    disk = node["disk"]
    if disk is None or not disk["totalBytes"]:
        return []
    free = disk["availableBytes"] / disk["totalBytes"]
    low = free < LOW_DISK
    text = f" {size_text(disk['availableBytes'], '')} free{' ▲' if low else ''}"
    cells = max(4, columns - 5 - len(text))
    role = "attention" if low else "other"
    return [line(("disk ", "muted"), *bar(1 - free, cells, role), (text, role if low else None))]


def link_lines(cluster: Cluster, columns: int) -> list[Line]:
    """Which node reaches which, how and how fast; a way that works in one direction only."""
    names = {node["id"]: node["name"] for node in cluster.nodes}
    rdma = {(source, sink) for source in names for sink in cluster.state.rdma_links(NodeId(source))}
    found: dict[tuple[str, str], tuple[str, float]] = {}
    for node_id, member in cluster.members.by_id.items():
        for measured in member.links:
            old = found.get((node_id, measured.sink))
            if old is None or measured.latency_ms < old[1]:
                found[node_id, measured.sink] = measured.interface_type, measured.latency_ms
    words = [_link(pair, found, names, rdma) for pair in sorted(_pairs(names, found))]
    return _flow([word for word in words if word], columns)


def _pairs(
    names: dict[str, str], found: dict[tuple[str, str], tuple[str, float]]
) -> set[tuple[str, str]]:
    return {(min(pair), max(pair)) for pair in found if pair[0] in names and pair[1] in names}


def _link(
    pair: tuple[str, str],
    found: dict[tuple[str, str], tuple[str, float]],
    names: dict[str, str],
    rdma: set[tuple[str, NodeId]],
) -> list[Piece]:
    there, back = found.get(pair), found.get((pair[1], pair[0]))
    kind, latency_ms = min([way for way in (there, back) if way], key=lambda way: way[1])
    dash = _KINDS.get(kind, "─")
    name = "RDMA" if (pair[0], pair[1]) in rdma else "" if kind == "unknown" else kind
    text = f"{dash}{name.replace('maybe_', '')} {latency_ms:.1f} ms{dash}".replace(f"{dash} ", dash)
    if there is None or back is None:
        source, sink = (pair[1], pair[0]) if there is None else pair
        return [
            (f"{names[sink]} cannot reach {names[source]} ", "problem"),
            (f"({names[source]} {text} {names[sink]})", None),
        ]
    slow = " ▲ slow" if latency_ms > _SLOW_MS else ""
    return [
        (names[pair[0]] + " ", None), (text, "attention" if slow else "other"),
        (f" {names[pair[1]]}", None), (slow, "attention"),
    ]  # fmt: skip


def _flow(words: Sequence[Sequence[Piece]], columns: int) -> list[Line]:
    """The words in as few lines as they need."""
    lines: list[list[Piece]] = []
    used = columns
    for word in words:
        size = sum(len(text) for text, _ in word) + 3
        if used + size > columns:
            lines.append([(pad(" links" if not lines else "", 8), "muted")])
            used = 8
        lines[-1] += [*word, ("   ", None)]
        used += size
    return [line(*pieces) for pieces in lines]

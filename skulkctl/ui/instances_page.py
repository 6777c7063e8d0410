"""Placed models as rows and as a detail: ranks over nodes to scale, progress, speeds. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skulkctl.output.layout import without_owner
from skulkctl.output.terminal import pad, width
from skulkctl.output.units import size_text
from skulkctl.placement.instances import (
    InstanceItem,
    RunnerItem,
    instance_items,
    runner_text,
    short_instance,
    waiting_items,
)
from skulkctl.placement.moves import with_moves
from skulkctl.ui.history import History
from skulkctl.ui.lines import BLANK, Line, Piece, bar, line, shorten, spark, wrap
from skulkctl.ui.rates import first_token_times, group_speed, memory_points

if TYPE_CHECKING:
    from skulkctl.ui.plots import Series
    from skulkctl.ui.snapshot import Snapshot
    from skulkctl.verdict.ranks import Group

STATUS = {
    "ready": ("●", "ok"),
    "starting": ("◌", "waiting"),
    "waiting": ("◌", "attention"),
    "failed": ("✖", "problem"),
}
HEADERS = ("", "model", "where", "context", "requests", "tok/s", "TTFT")
_FILLS = "█▓▒"


def items_of(snapshot: Snapshot) -> list[InstanceItem]:
    """What is placed, and what waits for a place."""
    cluster = snapshot.cluster
    if cluster is None:
        return []
    items = instance_items(cluster.state)
    if cluster.placements is None:
        return items
    return [*with_moves(items, cluster.placements), *waiting_items(cluster.placements)]


def state_of(item: InstanceItem, snapshot: Snapshot) -> tuple[str, str, str]:
    """Symbol, role and word; a hang is worse than what the placement says."""
    finding = snapshot.verdict.of(item["id"])
    if finding is not None and finding.is_problem:
        return "✖", "problem", str(finding.state)
    symbol, role = STATUS.get(item["status"], ("▲", "attention"))
    return symbol, role, item["status"]


def _group(snapshot: Snapshot, instance_id: str) -> Group | None:
    return next((one for one in snapshot.groups if one.instance_id == instance_id), None)


def table_rows(
    snapshot: Snapshot, history: History, columns: int
) -> list[tuple[str, Sequence[Line | str]]]:
    """One row for each instance, as wide as the screen allows."""
    items = items_of(snapshot)
    names = without_owner([item["modelId"] for item in items])
    room = max(12, min(40, columns // 3))
    return [
        (item["id"], _row(item, shorten(name, room), snapshot, history, columns))
        for item, name in zip(items, names, strict=True)
    ]


def _row(
    item: InstanceItem, name: str, snapshot: Snapshot, history: History, columns: int
) -> list[Line | str]:
    symbol, role, word = state_of(item, snapshot)
    group = _group(snapshot, item["id"])
    speed = None if group is None else group_speed(snapshot, group)
    times = first_token_times(group.ranks[0]) if group and group.ranks else []
    context = item["contextTokenLimit"]
    drawn = spark(history.of("speed", item["id"]), 8) if columns >= 110 else ""
    where = shorten(" ".join(item["nodes"]), max(10, columns // 4)) or "no node"
    return [
        line((f"{symbol} {word}", role)),
        line((name, "strong")),
        where,
        line(f"{context or '–':>8}"),
        line(f"{item['tasks']:>8}"),
        line((drawn, "compute"), f"{'–' if speed is None else f'{speed:.1f}':>7}"),
        line(f"{'–' if not times else f'{times[-1]:.2f} s':>8}"),
    ]


def detail_lines(
    item: InstanceItem,
    snapshot: Snapshot,
    history: History,
    columns: int,
    *,
    has_plots: bool = False,
) -> list[Line]:
    """Everything about one instance."""
    symbol, role, word = state_of(item, snapshot)
    size = item["storageBytes"]
    facts = [
        item["sharding"] or "",
        (item["kind"] or "").removesuffix("Instance"),
        f"{item['totalRunners']} ranks",
        size_text(size) if size else "",
        f"context {item['contextTokenLimit']}" if item["contextTokenLimit"] else "",
    ]
    head = line(
        (f" {symbol} {word}  ", role),
        (item["modelId"], "strong"),
        (f"  {short_instance(item['id'])}  {' · '.join(fact for fact in facts if fact)}", "muted"),
    )
    lines = [head, strip_line(item, columns)]
    lines += [_rank_line(runner, item, columns) for runner in item["runners"]]
    lines += _speed_lines(item, snapshot, history, columns, has_plots)
    if item["detail"]:
        lines.append(line((f" {item['detail']}", role)))
    finding = snapshot.verdict.of(item["id"])
    if finding is not None and finding.is_problem:
        told = wrap(finding.summary, max(20, columns - 2))
        lines += [line((f" {row}", "problem")) for row in told]
        lines.append(line((" t opens the timeline", "muted")))
    return [*lines, *_moves(item)]


def strip_line(item: InstanceItem, columns: int) -> Line:
    """The layers of the model, to scale, with the node that holds each part."""
    runners = sorted(item["runners"], key=lambda runner: (runner["startLayer"], runner["rank"]))
    if not runners:
        return line((" on no node", "attention"))
    layers = runners[0]["modelLayers"] or 1
    room = max(len(runners) * 3, columns - 5 - len(f" {layers} layers"))
    pieces: list[Piece] = [(" ▕", "muted")]
    tensor = item["sharding"] == "Tensor"
    left = room
    for number, runner in enumerate(runners):
        share = 1 / len(runners) if tensor else (runner["endLayer"] - runner["startLayer"]) / layers
        is_last = number + 1 == len(runners)
        cells = max(3, left if is_last else round(share * room))
        left -= cells
        label = shorten(f" {runner['node']} ", cells)
        ready = runner["status"] in ("RunnerReady", "RunnerRunning")
        role = "compute" if ready else "error" if runner["status"] == "RunnerFailed" else "start"
        fill = _FILLS[number % len(_FILLS)] * max(0, cells - width(label))
        pieces += [(label, f"@{role}"), (fill, role)]
    return line(*pieces, ("▏", "muted"), (f" {layers} layers", "muted"))


def _rank_line(runner: RunnerItem, item: InstanceItem, columns: int) -> Line:
    """What one rank holds and does; what takes time has a bar."""
    layers = f"{runner['startLayer']}–{runner['endLayer']}"
    head = f" {runner['rank']:>3} {pad(shorten(runner['node'], 16), 16)} {layers:>8}  "
    text = runner_text(runner)
    share = _progress(runner)
    role = "problem" if runner["status"] == "RunnerFailed" else None
    if share is None:
        return line((head, "muted"), (text, role))
    cells = max(6, min(30, columns - len(head) - width(text) - 8))
    return line((head, "muted"), *bar(share, cells, "start"), f" {share:4.0%}  {text}")


def _progress(runner: RunnerItem) -> float | None:
    """How far it is with what it loads or stages."""
    staging = runner["staging"]
    if runner["status"] == "RunnerLoading" and runner["layersToLoad"]:
        return (runner["layersLoaded"] or 0) / runner["layersToLoad"]
    if staging and staging["totalBytes"] and staging["status"] == "ongoing":
        return (staging["doneBytes"] or 0) / staging["totalBytes"]
    return None


def speed_series(item: InstanceItem, snapshot: Snapshot, history: History) -> list[Series]:
    """What is plotted of an instance: its speed, and the time to the first token."""
    group = _group(snapshot, item["id"])
    times = first_token_times(group.ranks[0]) if group and group.ranks else []
    speeds = history.of("speed", item["id"])
    series: list[Series] = []
    if any(speeds):
        series.append((f"tokens/s · {speeds[-1]:.1f} · highest {max(speeds):.1f}", speeds, None))
    if times:
        series.append(
            (f"time to first token · {times[-1]:.2f} s · best {min(times):.2f} s", times, None)
        )
    return series


def _speed_lines(
    item: InstanceItem, snapshot: Snapshot, history: History, columns: int, has_plots: bool
) -> list[Line]:
    group = _group(snapshot, item["id"])
    if group is None or not group.ranks:
        return []
    cells = max(10, min(30, columns - 40))
    speed, times = group_speed(snapshot, group), first_token_times(group.ranks[0])
    memory = [memory_points(rank) for rank in group.ranks]
    lines = [] if has_plots else [
        BLANK,
        line((" tok/s   ", "muted"), (spark(history.of("speed", item["id"]), cells), "compute"),
             f"  {'–' if speed is None else f'{speed:.1f}'}"),
        line((" TTFT    ", "muted"), (spark(times, cells), "wait"),
             f"  {'–' if not times else f'{times[-1]:.2f} s, best {min(times):.2f} s'}"),
    ]  # fmt: skip
    for rank, points in zip(group.ranks, memory, strict=True):
        if points:
            text = f"  {size_text(int(points[-1]))} MLX on {rank.node}"
            lines.append(
                line((f" memory {rank.rank} ", "muted"), (spark(points, cells), "other"), text)
            )
    return lines


def _moves(item: InstanceItem) -> list[Line]:
    from skulkctl.placement.moves import move_line
    from skulkd.wire.placement_record import Move

    moves = [move_line(Move.model_validate(move)) for move in item["moves"]]
    return [line((f" moved  {move}", "attention")) for move in moves]

"""`skulkctl top` as lines: nodes with memory and GPU, runners with phase and tokens/s. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skulkctl.screen import pad
from skulkctl.tui.banner import ROLES
from skulkctl.tui.lanes import marks_of
from skulkctl.tui.lines import BLANK, Line, clip, line, spread, to_ascii
from skulkctl.tui.shots import WIDE, Shot, View
from skulkctl.units import age_text, size_text
from skulkctl.verdict import PROBLEMS
from skulkctl.verdict.ranks import Group, Rank
from skulkctl.views.read import Document, integer, mapping, number, text

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


def top_items(shot: Shot, nodes: Sequence[Document], state: Document) -> dict[str, object]:
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
    return {"nodes": [_node(node, state) for node in nodes], "runners": runners}


def _node(node: Document, state: Document) -> dict[str, object]:
    system = mapping(state, "nodeSystem", str(node.get("id")))
    ratio = number(system, "accelerator", "utilizationRatio")
    usage = number(system, "gpuUsage")
    gpu = ratio * 100 if ratio is not None else None if usage is None else usage
    total = integer(node, "memory", "totalBytes")
    free = integer(node, "memory", "availableBytes")
    return {
        "name": node.get("name"),
        "health": node.get("health"),
        "draining": node.get("draining"),
        "memoryTotalBytes": total,
        "memoryUsedBytes": None if total is None or free is None else total - free,
        "gpuPercent": gpu,
        "cpuPercent": number(system, "pcpuUsage"),
        "powerWatts": number(system, "sysPower"),
    }


def top_page(
    shot: Shot, view: View, items: Mapping[str, object], columns: int, rows: int | None
) -> list[Line]:
    """The whole screen. `rows` None: as long as it needs to be."""
    worst = shot.judgement.worst
    fresh = shot.replay or ("NO ANSWER" if shot.trouble else f"LIVE {shot.every_s:g} s")
    speed = _total_speed(shot.groups, shot)
    left = f" top  {shot.context + '  ' if shot.context else ''}{speed:.1f} tokens/s"
    lines = [spread(left, f"{fresh}  age {age_text(shot.age_s)} ", columns, "strong")]
    lines.append(line((f" {worst.state}", ROLES[worst.state]), f"  {' '.join(worst.says)}"))
    lines += [BLANK, line((f" {'node':<14}{'health':<10}{'memory':<28}{'gpu':<20}cpu", "muted"))]
    lines += [_node_line(one, columns) for one in _list(items, "nodes")]
    title = f" {'model':<30}{'rank':<5}{'node':<12}{'status':<11}{'phase':<18}{'in':>7}{'tok/s':>8}"
    lines += [BLANK, line((clip(title, columns), "muted"))]
    lines += [_runner_line(one, columns) for one in _list(items, "runners")]
    if rows is not None:
        lines = [*lines[: rows - 1], *[BLANK] * (rows - 1 - len(lines))]
        lines.append(line((" ? help   t timeline   r refresh   p pause   q quit", "muted")))
    shown = [one.cut(columns) for one in lines]
    return [to_ascii(one) for one in shown] if view.ascii else shown


def _total_speed(groups: Sequence[Group], shot: Shot) -> float:
    """Rank 0 of each placement speaks for it."""
    firsts = [group.ranks[0] for group in groups if group.ranks]
    return sum(tokens_per_second(rank, shot.skews, shot.now_s) or 0.0 for rank in firsts)


def _list(items: Mapping[str, object], name: str) -> list[Document]:
    found = items.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _node_line(node: Document, columns: int) -> Line:
    used, total = integer(node, "memoryUsedBytes"), integer(node, "memoryTotalBytes")
    memory = "-"
    if used is not None and total:
        both = f"{size_text(used, '')}/{size_text(total, '')}"
        sizes = both if columns >= WIDE else f"{used / total:.0%}"
        memory = f"{_bar(used / total)} {sizes}"
    gpu = number(node, "gpuPercent")
    shown = "-" if gpu is None else f"{_bar(gpu / 100)} {gpu:.0f}%"
    cpu = number(node, "cpuPercent")
    health = text(node, "health") or "-"
    if node.get("draining") and health == "ok":
        health = "draining"
    role = {"ok": "ok", "warn": "attention", "draining": "attention"}.get(health, "problem")
    return line(
        f" {pad(clip(text(node, 'name') or '?', 13), 14)}",
        (f"{health:<10}", role),
        f"{memory:<28}{shown:<20}{'-' if cpu is None else f'{cpu:.0f}%'}",
    )


def _bar(share: float) -> str:
    full = round(min(max(share, 0.0), 1.0) * _BAR)
    return "▮" * full + "▯" * (_BAR - full)


def _runner_line(one: Document, columns: int) -> Line:
    model = clip(text(one, "modelId") or "?", 29)
    speed = number(one, "tokensPerSecond")
    told = f" {pad(model, 30)}{one.get('rank')!s:<5}{pad(clip(str(one.get('node')), 11), 12)}"
    told += f"{clip(str(one.get('status')), 10):<11}{clip(str(one.get('doing')), 17):<18}"
    told += f"{age_text(number(one, 'secondsInPhase') or 0):>7}"
    told += f"{'-' if speed is None else f'{speed:.1f}':>8}"
    bad = text(one, "verdict") in PROBLEMS
    return line((told, "problem" if bad else None)).cut(columns)

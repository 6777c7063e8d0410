"""The page: verdict, lanes, stacks, then every rank in detail. One file, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from skulkctl.output.units import size_text
from skulkctl.report.chart import lanes_chart
from skulkctl.report.evidence import LOGS, RankFiles, ranks_in
from skulkctl.report.stacks import Frame, main_stacks, merge, ranks_text
from skulkctl.ui.alphabet import CANCEL, COMPUTE, ERROR, FILLS, IDLE, START, WAIT

if TYPE_CHECKING:
    from skulkctl.ui.snapshot import Snapshot
    from skulkctl.verdict import Finding
    from skulkctl.verdict.ranks import Group, Rank

MOST_ENTRIES = 200
_LOG_LINES = 200
_FAMILIES = {
    COMPUTE: "compute", WAIT: "waits for a rank", START: "start", IDLE: "idle",
    ERROR: "error", CANCEL: "cancel",
}  # fmt: skip
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def report(snapshot: Snapshot, members: Mapping[str, bytes], about: Mapping[str, Any]) -> str:
    """The whole page. `about` is the manifest of the bundle."""
    found = ranks_in(members)
    wanted = about.get("instanceId")
    groups = [group for group in snapshot.groups if wanted in (None, group.instance_id)]
    title = f"Incident {about.get('modelId') or 'report'}"
    body = [_head(title, snapshot, about)]
    for group in groups or snapshot.groups:
        body += [_verdict(snapshot.finding(group)), _lanes(snapshot, group)]
        body += [
            _positions(group, snapshot.finding(group)),
            _stacks(found, snapshot.finding(group)),
        ]
        body += [_memory(group), _recorders(group)]
    body += [_placements(found), _logs(found), _versions(found), _failed(about)]
    style = files("skulkctl.report").joinpath("style.css").read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _head(title: str, snapshot: Snapshot, about: Mapping[str, Any]) -> str:
    at = str(about.get("at") or snapshot.timeline.generated_at)
    instance = str(about.get("instanceId") or "")
    return (
        f'<header><h1>{escape(title)}</h1><p class="dim">captured {escape(at)} · instance '
        f"<code>{escape(instance)}</code> · secrets are redacted</p></header>"
    )


def _verdict(finding: Finding) -> str:
    role = "problem" if finding.is_problem else "ok" if finding.state == "OK" else "attention"
    symbol = {"problem": "✖", "ok": "●", "attention": "▲"}[role]
    rule = f" · rule {finding.rule}" if finding.rule else ""
    notes = [*finding.evidence, *map(str, finding.deadlines)]
    commands = "".join(f"<li><code>{escape(command)}</code></li>" for command in finding.next)
    return (
        f'<section class="card verdict {role}"><div class="state">{symbol} '
        f"{escape(str(finding.state))}{escape(rule)}</div><p>{escape(finding.summary)}</p>"
        f"{_list(notes)}{f'<p>Next:</p><ul>{commands}</ul>' if commands else ''}</section>"
    )


def _list(texts: Iterable[str]) -> str:
    rows = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<ul class="dim">{rows}</ul>' if rows else ""


def _section(title: str, body: str) -> str:
    return f'<h2>{escape(title)}</h2><section class="card scroll">{body}</section>'


def _lanes(snapshot: Snapshot, group: Group) -> str:
    legend = "".join(
        f'<li><svg viewBox="0 0 14 14"><rect class="{name}" width="14" height="14" rx="2"/></svg>'
        f"{words}</li>"
        for name, words in _FAMILIES.items()
    )
    title = f"{group.model_id}: what every rank did"
    return _section(title, f'{lanes_chart(snapshot, group)}<ul class="legend">{legend}</ul>')


def _tree(top: Frame, odd: frozenset[int]) -> str:
    rows = []
    before = top.ranks
    for depth, frame in top.lines():
        names = ["odd"] * (frame.ranks <= odd) + ["fork"] * (frame.ranks != before)
        style, before = f' class="{" ".join(names)}"' if names else "", frame.ranks
        rows.append(
            f'<li{style} style="margin-left:{depth * 1.6:g}rem"><span class="ranks">'
            f"{ranks_text(frame.ranks)}</span>{escape(frame.name)}</li>"
        )
    return f'<ul class="tree mono">{"".join(rows)}</ul>'


def _positions(group: Group, finding: Finding) -> str:
    """Where the ranks are by their own account, which needs no tool."""
    places = {
        rank.rank: [
            rank.status,
            rank.phase,
            rank.at or "no entry",
            FILLS.get(rank.wait, rank.wait.name.lower()),
        ]
        for rank in group.ranks
    }
    return _section("Where the ranks are", _tree(merge(places), _odd(finding)))


def _stacks(found: Sequence[RankFiles], finding: Finding) -> str:
    stacks = main_stacks({one.rank: one.stacks for one in found if one.stacks})
    missing = [f"rank {one.rank}: {one.no_stacks}" for one in found if one.rank not in stacks]
    shown = _tree(merge(stacks), _odd(finding)) if stacks else "<p>No stacks were captured.</p>"
    return _section("Merged stacks", shown + _list(missing))


def _odd(finding: Finding) -> frozenset[int]:
    """The rank that the finding points at."""
    culprit = finding.culprit
    return frozenset() if culprit is None or culprit.rank is None else frozenset({culprit.rank})


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]], numbers: frozenset[int]) -> str:
    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=number' if number in numbers else ''}>{text}</{tag}>"
            for number, text in enumerate(texts)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', headers)}</tr>{body}</table>"


def _memory(group: Group) -> str:
    known = [(rank, _bytes(rank)) for rank in group.ranks]
    most = max((active + cache for _, (active, cache, _) in known), default=0) or 1
    rows = [
        (
            escape(f"{rank.rank} {rank.node}"),
            f'<span class="bar" style="width:{120 * (active + cache) / most:.0f}px"></span>',
            *(size_text(value) for value in (active, cache, peak)),
        )
        for rank, (active, cache, peak) in known
    ]
    headers = ("rank", "", "active", "cache", "peak")
    return _section("MLX memory", _table(headers, rows, frozenset({2, 3, 4})))


def _bytes(rank: Rank) -> tuple[int, int, int]:
    """Active, cached and peak, by the rank's newest entry that has them."""
    for entry in reversed(rank.entries):
        memory = entry.mlx_memory
        if memory is not None:
            parts = (memory.active, memory.cache, memory.peak)
            active, cache, peak = (0 if part is None else part.in_bytes for part in parts)
            return active, cache, peak
    return 0, 0, 0


def _recorders(group: Group) -> str:
    parts = []
    for rank in group.ranks:
        rows = [
            (
                escape(time_text_of(entry.at)),
                escape(entry.phase),
                escape(entry.event),
                escape(entry.detail or ""),
                escape(" ".join(f"{key}={value}" for key, value in entry.attrs.items())),
            )
            for entry in rank.entries[-MOST_ENTRIES:]
        ]
        table = _table(("time", "phase", "event", "detail", "attributes"), rows, frozenset())
        head = f"rank {rank.rank} on {rank.node}: {len(rows)} entries, now {rank.phase}"
        parts.append(f"<details><summary>{escape(head)}</summary>{table}</details>")
    return _section("Flight recorder", "".join(parts))


def time_text_of(at: str) -> str:
    """`08:21:44.361` of a time in ISO 8601."""
    return at.partition("T")[2][:12] or at


def _placements(found: Sequence[RankFiles]) -> str:
    rows: dict[str, Sequence[str]] = {}
    for one in found:
        for placed in one.mapping("diagnostics.json").get("placements") or []:
            for runner in placed.get("runners") or []:
                rows.setdefault(str(runner.get("runnerId")), _placement(placed, runner))
    if not rows:
        return ""
    headers = ("model", "instance", "rank", "node", "layers", "status")
    return _section("Placements", _table(headers, rows.values(), frozenset({2})))


def _placement(placed: Mapping[str, Any], runner: Mapping[str, Any]) -> Sequence[str]:
    layers = f"{runner.get('startLayer')}–{runner.get('endLayer')} of {runner.get('nLayers')}"
    cells = (
        placed.get("modelId"), str(placed.get("instanceId"))[:8], runner.get("deviceRank"),
        runner.get("friendlyName") or runner.get("nodeId"), layers, runner.get("statusKind"),
    )  # fmt: skip
    return [escape(str(cell)) for cell in cells]


def _logs(found: Sequence[RankFiles]) -> str:
    parts = []
    for one in found:
        for name in (*LOGS, "proc.txt"):
            lines = one.text(name).splitlines()[-_LOG_LINES:]
            if lines:
                head = f"rank {one.rank} on {one.node}: {name.removesuffix('.txt')}"
                text = escape("\n".join(lines))
                parts.append(
                    f"<details><summary>{escape(head)}</summary><pre>{text}</pre></details>"
                )
    return _section("Log lines and kernel state", "".join(parts)) if parts else ""


def _versions(found: Sequence[RankFiles]) -> str:
    rows = []
    for one in found:
        identity = one.mapping("diagnostics.json").get("identity") or {}
        keys = ("skulkVersion", "skulkCommit", "osVersion", "osBuildVersion", "chipId")
        rows.append((escape(one.node), *(escape(str(identity.get(key) or "")) for key in keys)))
    if not rows:
        return ""
    headers = ("node", "version", "commit", "system", "build", "chip")
    return _section("Versions", _table(headers, rows, frozenset()))


def _failed(about: Mapping[str, Any]) -> str:
    failed = about.get("failed") or {}
    notes = [f"{rank}: {why}" for rank, why in failed.items()]
    return _section("Not captured", _list(notes)) if notes else ""

"""One node's diagnostics as a page for people, in sections. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from skulkctl.layout import (
    hanging,
    pairs,
    time_of_day,
    unique_prefixes,
    without_directory,
    without_owner,
)
from skulkctl.screen import printable
from skulkctl.tables import EMPTY, Column, age, percent, plain, render, size
from skulkctl.units import size_text
from skulkctl.views.read import (
    Document,
    dig,
    either,
    flag,
    integer,
    mapping,
    number,
    sequence,
    size_bytes,
    text,
)

Pairs = Sequence[tuple[str, object]]
INDENT = "  "

PROCESSES = (
    Column("pid", "pid", "Process id.", right=True),
    Column("parent", "parentPid", "Process id of the parent.", wide=True, right=True),
    Column("role", "role", "skulk, runner, vector, python or other."),
    Column("status", "status", "State in the operating system.", spare=2),
    Column("cpu", "cpuPercent", "CPU over a short interval.", text=percent, right=True),
    Column("rss", "rss.inBytes", "Memory in use.", text=size, right=True),
    Column("age", "elapsedSeconds", "Time since it started.", text=age, right=True, spare=1),
    Column(
        "command", "command", "Command line, secrets removed.", clip=True, short=without_directory
    ),
)

RUNNERS = (
    Column("runner", "runnerId", "Id of the runner.", short=unique_prefixes(8), is_id=True),
    Column("model", "modelId", "Model it holds a shard of.", short=without_owner),
    Column("rank", "rankOf", "Rank and size of its group."),
    Column("layers", "layers", "Layers it holds, of all.", spare=4),
    Column("pid", "pid", "Process id.", right=True, spare=2),
    Column("alive", "processAlive", "Whether its process lives.", spare=5),
    Column("status", "statusKind", "Status it reported last.", spare=3),
    Column("phase", "phase", "What it does now."),
    Column("in", "secondsInPhase", "Time in this phase.", text=age, right=True),
    Column("tasks", "taskCount", "Tasks in progress.", right=True, spare=1),
    Column("last-progress", "lastProgressAt", "Its last report of progress.", wide=True),
)

RECORDER = (
    Column("at", "at", "When the runner reported it.", short=time_of_day),
    Column("rank", "context.rank", "Rank of the runner.", right=True),
    Column("event", "event", "What was reported."),
    Column("phase", "phase", "The phase it belongs to.", spare=1),
    Column("detail", "detail", "What exactly."),
)
RECORDER_SHOWN = 6
"""Newest entries of each runner; the wide form shows all 128."""

PLACEMENTS = (
    Column("instance", "instanceId", "Id of the instance.", short=unique_prefixes(8), is_id=True),
    Column("model", "modelId", "Model that is placed.", short=without_owner),
    Column("rank", "rankOf", "Rank and size of the group.", right=True),
    Column("node", "node", "Node of this rank."),
    Column("layers", "layers", "Layers it holds, of all.", spare=2),
    Column("status", "statusKind", "Status of the runner."),
    Column("tasks", "taskCount", "Tasks it has.", right=True, spare=1),
)


def node_title(diagnostics: object) -> str:
    """The node's name, else its host name, else its id."""
    runtime = mapping(diagnostics, "runtime")
    names = (text(runtime, key) for key in ("friendlyName", "hostname", "nodeId"))
    return next((name for name in names if name), EMPTY)


def diagnostics_screen(
    diagnostics: object, wide: bool, colour: bool, room: int | None = None
) -> str:
    """The whole page; a section without content says so."""
    tables = (
        ("PROCESSES", PROCESSES, _rows(diagnostics, "processes")),
        ("RUNNERS", RUNNERS, _runners(diagnostics)),
        ("RECORDER", RECORDER, _recorder(diagnostics, wide)),
        ("PLACEMENTS", PLACEMENTS, _placements(diagnostics)),
    )
    warnings = [printable(str(entry)) for entry in sequence(diagnostics, "warnings")] or ["none"]
    lines = [line for warning in warnings for line in hanging("  ", warning, room)]
    return "\n".join(
        [
            _pairs("RUNTIME", _runtime(mapping(diagnostics, "runtime")), room),
            _pairs("IDENTITY", _identity(mapping(diagnostics, "identity")), room),
            _pairs("RESOURCES", _resources(mapping(diagnostics, "resources")), room),
            *(_table(*table, wide=wide, colour=colour, room=room) for table in tables),
            "WARNINGS\n" + "".join(f"{line}\n" for line in lines),
        ]
    )


def _runtime(runtime: Document) -> Pairs:
    commit = text(runtime, "skulkCommit")
    version = plain(text(runtime, "skulkVersion"))
    exists = "  (no such file)" if flag(runtime, "configFileExists") is False else ""
    return [
        ("name", text(runtime, "friendlyName")),
        ("host", text(runtime, "hostname")),
        ("node id", text(runtime, "nodeId")),
        ("role", either(flag(runtime, "isMaster"), "master", "worker")),
        ("master id", text(runtime, "masterNodeId")),
        ("version", f"{version} (commit {commit})" if commit else version),
        ("directory", text(runtime, "cwd")),
        ("config file", f"{plain(text(runtime, 'configPath'))}{exists}"),
        ("namespace", text(runtime, "libp2PNamespace")),
        ("tracing", either(flag(runtime, "tracingEnabled"), "on", "off")),
        ("log shipping", either(flag(runtime, "structuredLoggingConfigured"), "on", "off")),
        ("ingest url", text(runtime, "loggingIngestUrl")),
    ]


def _identity(identity: Document) -> Pairs:
    build = text(identity, "osBuildVersion")
    system = plain(text(identity, "osVersion"))
    return [
        ("hardware", text(identity, "modelId")),
        ("chip", text(identity, "chipId")),
        ("system", f"{system} ({build})" if build else system),
    ]


def _resources(resources: Document) -> Pairs:
    system = mapping(resources, "system")
    chip = mapping(system, "accelerator")
    return [
        ("memory now", _free_of(resources, "currentMemory", "ramAvailable", "ramTotal")),
        ("memory told", _free_of(resources, "gatheredMemory", "ramAvailable", "ramTotal")),
        ("swap", _free_of(resources, "currentMemory", "swapAvailable", "swapTotal")),
        ("wired", _size(size_bytes(resources, "currentWired"))),
        ("disk", _free_of(resources, "disk", "available", "total")),
        ("accelerator", _joined(text(chip, "name"), text(chip, "vendor"))),
        ("gpu memory", _used_of(integer(chip, "vramUsedBytes"), integer(chip, "vramTotalBytes"))),
        ("gpu load", _unit(_ratio_percent(chip) or number(system, "gpuUsage"), "%")),
        # A stock node reports 0 for what it did not measure.
        (
            "temperature",
            _unit(number(chip, "temperatureCelsius") or number(system, "temp") or None, " C"),
        ),
        ("power", _unit(number(chip, "powerWatts") or number(system, "sysPower") or None, " W")),
        ("network", _interfaces(resources)),
    ]


def _interfaces(resources: Document) -> str:
    found = [
        f"{plain(text(entry, 'name'))} {plain(text(entry, 'ipAddress'))}"
        f" ({plain(text(entry, 'interfaceType'))})"
        for entry in sequence(resources, "network", "interfaces")
    ]
    return ", ".join(found) or EMPTY


def _runners(diagnostics: object) -> list[Document]:
    return [
        {**runner, **_rank(runner), "taskCount": len(sequence(runner, "inProgressTasks"))}
        for runner in _rows(diagnostics, "supervisorRunners")
    ]


def _recorder(diagnostics: object, wide: bool) -> list[Document]:
    """What each runner reported last, oldest first."""
    return [
        entry
        for runner in _rows(diagnostics, "supervisorRunners")
        for entry in _rows(runner, "flightRecorder")[0 if wide else -RECORDER_SHOWN :]
    ]


def _placements(diagnostics: object) -> list[Document]:
    return [
        {
            **runner,
            **_rank(runner),
            "instanceId": text(placement, "instanceId"),
            "modelId": text(placement, "modelId"),
            "node": text(runner, "friendlyName") or text(runner, "nodeId"),
            "taskCount": len(sequence(runner, "tasks")),
        }
        for placement in _rows(diagnostics, "placements")
        for runner in _rows(placement, "runners")
    ]


def _rank(runner: Document) -> Document:
    rank, world = integer(runner, "deviceRank"), integer(runner, "worldSize")
    start, end = integer(runner, "startLayer"), integer(runner, "endLayer")
    return {
        "rankOf": None if rank is None else f"{rank}/{plain(world)}",
        "layers": None
        if start is None
        else f"{start}-{plain(end)}/{plain(dig(runner, 'nLayers'))}",
    }


def _rows(document: object, key: str) -> list[Document]:
    return [entry for entry in sequence(document, key) if isinstance(entry, Mapping)]


def _pairs(title: str, fields: Pairs, room: int | None) -> str:
    shown = [(name, plain(value)) for name, value in fields]
    return f"{title}\n{pairs(shown, room, INDENT, label=12)}"


def _table(
    title: str,
    columns: Iterable[Column],
    rows: Sequence[Document],
    *,
    wide: bool,
    colour: bool,
    room: int | None,
) -> str:
    if not rows:
        return f"{title}\n  none\n"
    shown = [column for column in columns if wide or not column.wide]
    inner = None if room is None else room - len(INDENT)
    body = render(shown, rows, colour=colour, room=inner, keep_all=wide)
    return title + "\n" + "".join(f"{INDENT}{line}".rstrip() + "\n" for line in body.splitlines())


def _free_of(resources: Document, part: str, free: str, total: str) -> str:
    available, all_of_it = size_bytes(resources, part, free), size_bytes(resources, part, total)
    if available is None or all_of_it is None:
        return EMPTY
    return f"{size_text(available)} free of {size_text(all_of_it)}" if all_of_it else "none"


def _used_of(used: int | None, total: int | None) -> str:
    return EMPTY if total is None else f"{_size(used)} used of {size_text(total)}"


def _size(value: int | None) -> str:
    return EMPTY if value is None else size_text(value)


def _ratio_percent(chip: Document) -> float | None:
    ratio = number(chip, "utilizationRatio")
    return None if ratio is None else 100 * ratio


def _unit(value: float | None, unit: str) -> str:
    return EMPTY if value is None else f"{value:.1f}{unit}"


def _joined(name: str | None, detail: str | None) -> str:
    return plain(name or detail) if not (name and detail) else f"{name} ({detail})"

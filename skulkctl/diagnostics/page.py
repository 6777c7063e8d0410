"""The diagnostics of a node as a page, in sections. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from skulkctl.daemon.state import known
from skulkctl.output.layout import (
    hanging,
    pairs,
    time_of_day,
    unique_prefixes,
    without_directory,
    without_owner,
)
from skulkctl.output.tables import EMPTY, Column, age, percent, plain, render, size
from skulkctl.output.terminal import printable
from skulkctl.output.units import size_text

if TYPE_CHECKING:
    from skulkd.wire.base import Memory
    from skulkd.wire.diagnostics import (
        DiagnosticsProcess,
        InstancePlacementDiagnostics,
        NodeDiagnostics,
        NodeResourceDiagnostics,
        NodeRuntimeDiagnostics,
        PlacementRunnerDiagnostics,
        RunnerFlightRecorderEntry,
        RunnerSupervisorDiagnostics,
    )
    from skulkd.wire.machine import NodeIdentity

Pairs = Sequence[tuple[str, object]]
Row = Mapping[str, object]
"""The cells of a table, by the paths of its columns."""
INDENT = "  "

PROCESSES = (
    Column("pid", "pid", "Process id.", right=True),
    Column("parent", "parentPid", "Process id of the parent.", wide=True, right=True),
    Column("role", "role", "skulk, runner, vector, python or other."),
    Column("status", "status", "State in the operating system.", spare=2),
    Column("cpu", "cpuPercent", "CPU over a short interval.", text=percent, right=True),
    Column("rss", "rssBytes", "Memory in use.", text=size, right=True),
    Column("age", "elapsedSeconds", "Time since it started.", text=age, right=True, spare=1),
    Column(
        "command", "command", "Command line, secrets removed.", clip=True, short=without_directory
    ),
)

RUNNERS = (
    Column("runner", "runnerId", "Id of the runner.", short=unique_prefixes(8), is_id=True),
    Column("model", "modelId", "Model it holds a shard of.", short=without_owner),
    Column("rank", "rankOf", "Rank and size of its group."),
    Column("layers", "layers", "Layers on this rank / all layers.", spare=4),
    Column("pid", "pid", "Process id.", right=True, spare=2),
    Column("alive", "processAlive", "Whether its process is running.", spare=5),
    Column("status", "statusKind", "Status it reported last.", spare=3),
    Column("phase", "phase", "Current phase."),
    Column("in", "secondsInPhase", "Time in this phase.", text=age, right=True),
    Column("tasks", "taskCount", "Tasks in progress.", right=True, spare=1),
    Column("last-progress", "lastProgressAt", "Its last report of progress.", wide=True),
)

RECORDER = (
    Column("at", "at", "When the runner reported it.", short=time_of_day),
    Column("rank", "rank", "Rank of the runner.", right=True),
    Column("event", "event", "What was reported."),
    Column("phase", "phase", "The phase it belongs to.", spare=1),
    Column("detail", "detail", "Details of the entry."),
)
RECORDER_SHOWN = 6
"""Newest entries of each runner; the wide form shows all 128."""

PLACEMENTS = (
    Column("instance", "instanceId", "Id of the instance.", short=unique_prefixes(8), is_id=True),
    Column("model", "modelId", "Model that is placed.", short=without_owner),
    Column("rank", "rankOf", "Rank and size of the group.", right=True),
    Column("node", "node", "Node of this rank."),
    Column("layers", "layers", "Layers on this rank / all layers.", spare=2),
    Column("status", "statusKind", "Status of the runner."),
    Column("tasks", "taskCount", "Number of tasks.", right=True, spare=1),
)


def node_title(diagnostics: NodeDiagnostics) -> str:
    """The node's name, else its host name, else its id."""
    runtime = diagnostics.runtime
    return known(runtime.friendly_name) or known(runtime.hostname) or runtime.node_id


def diagnostics_page(
    diagnostics: NodeDiagnostics, wide: bool, colour: bool, room: int | None = None
) -> str:
    """The whole page; a section without content says so."""
    runners = diagnostics.supervisor_runners
    tables: Sequence[tuple[str, Iterable[Column], list[Row]]] = (
        ("PROCESSES", PROCESSES, [_process(process) for process in diagnostics.processes]),
        ("RUNNERS", RUNNERS, [_runner(runner) for runner in runners]),
        ("RECORDER", RECORDER, [_entry(entry) for entry in _newest(runners, wide)]),
        ("PLACEMENTS", PLACEMENTS, _placements(diagnostics.placements)),
    )
    warnings = [printable(warning) for warning in diagnostics.warnings] or ["none"]
    lines = [line for warning in warnings for line in hanging("  ", warning, room)]
    return "\n".join(
        [
            _pairs("RUNTIME", _runtime(diagnostics.runtime), room),
            _pairs("IDENTITY", _identity(diagnostics.identity), room),
            _pairs("RESOURCES", _resources(diagnostics.resources), room),
            *(_table(*table, wide=wide, colour=colour, room=room) for table in tables),
            "WARNINGS\n" + "".join(f"{line}\n" for line in lines),
        ]
    )


def _runtime(runtime: NodeRuntimeDiagnostics) -> Pairs:
    commit, version = known(runtime.skulk_commit), plain(known(runtime.skulk_version))
    exists = "" if runtime.config_file_exists else "  (no such file)"
    return [
        ("name", known(runtime.friendly_name)),
        ("host", known(runtime.hostname)),
        ("node id", runtime.node_id),
        ("role", "master" if runtime.is_master else "worker"),
        ("master id", runtime.master_node_id),
        ("version", f"{version} (commit {commit})" if commit else version),
        ("directory", runtime.cwd),
        ("config file", f"{plain(runtime.config_path)}{exists}"),
        ("namespace", runtime.libp2p_namespace),
        ("tracing", "on" if runtime.tracing_enabled else "off"),
        ("log shipping", "on" if runtime.structured_logging_configured else "off"),
        ("ingest url", runtime.logging_ingest_url),
    ]


def _identity(identity: NodeIdentity | None) -> Pairs:
    if identity is None:
        return [("hardware", None), ("chip", None), ("system", None)]
    build, system = known(identity.os_build_version), plain(known(identity.os_version))
    return [
        ("hardware", known(identity.model_id)),
        ("chip", known(identity.chip_id)),
        ("system", f"{system} ({build})" if build else system),
    ]


def _resources(resources: NodeResourceDiagnostics) -> Pairs:
    now, gathered, disk = resources.current_memory, resources.gathered_memory, resources.disk
    return [
        ("memory now", _free_of(now.ram_available, now.ram_total) if now else EMPTY),
        (
            "reported",
            _free_of(gathered.ram_available, gathered.ram_total) if gathered else EMPTY,
        ),
        ("swap", _free_of(now.swap_available, now.swap_total) if now else EMPTY),
        (
            "wired",
            size_text(resources.current_wired.in_bytes) if resources.current_wired else EMPTY,
        ),
        ("disk", _free_of(disk.available, disk.total) if disk else EMPTY),
        *_accelerator(resources),
        ("network", _interfaces(resources)),
    ]


def _accelerator(resources: NodeResourceDiagnostics) -> Pairs:
    system = resources.system
    chip = system.accelerator if system else None
    ratio = chip.utilization_ratio if chip else None
    load = 100 * ratio if ratio else system.gpu_usage if system else None
    # A node that did not measure something may report 0.
    celsius = (chip.temperature_celsius if chip else None) or (system.temp if system else None)
    watts = (chip.power_watts if chip else None) or (system.sys_power if system else None)
    return [
        ("accelerator", _joined(known(chip.name), known(chip.vendor)) if chip else EMPTY),
        ("gpu memory", _used_of(chip.vram_used_bytes, chip.vram_total_bytes) if chip else EMPTY),
        ("gpu load", _unit(load, "%")),
        ("temperature", _unit(celsius or None, " C")),
        ("power", _unit(watts or None, " W")),
    ]


def _interfaces(resources: NodeResourceDiagnostics) -> str:
    found = resources.network.interfaces if resources.network else []
    shown = [
        f"{interface.name} {plain(interface.ip_address)} ({interface.interface_type})"
        for interface in found
    ]
    return ", ".join(shown) or EMPTY


def _process(process: DiagnosticsProcess) -> Row:
    return {
        "pid": process.pid,
        "parentPid": process.parent_pid,
        "role": process.role,
        "status": process.status,
        "cpuPercent": process.cpu_percent,
        "rssBytes": None if process.rss is None else process.rss.in_bytes,
        "elapsedSeconds": process.elapsed_seconds,
        "command": process.command,
    }


def _runner(runner: RunnerSupervisorDiagnostics) -> Row:
    return {
        "runnerId": runner.runner_id,
        "modelId": runner.model_id,
        **_shard(runner),
        "pid": runner.pid,
        "processAlive": runner.process_alive,
        "statusKind": runner.status_kind,
        "phase": runner.phase,
        "secondsInPhase": runner.seconds_in_phase,
        "taskCount": len(runner.in_progress_tasks),
        "lastProgressAt": runner.last_progress_at,
    }


def _newest(
    runners: Sequence[RunnerSupervisorDiagnostics], wide: bool
) -> Iterator[RunnerFlightRecorderEntry]:
    """What each runner recorded last, oldest first."""
    for runner in runners:
        yield from runner.flight_recorder[0 if wide else -RECORDER_SHOWN :]


def _entry(entry: RunnerFlightRecorderEntry) -> Row:
    return {
        "at": entry.at,
        "rank": entry.context.rank,
        "event": entry.event,
        "phase": entry.phase,
        "detail": entry.detail,
    }


def _placements(placements: Sequence[InstancePlacementDiagnostics]) -> list[Row]:
    return [
        {
            "instanceId": placement.instance_id,
            "modelId": placement.model_id,
            **_shard(runner),
            "node": known(runner.friendly_name) or runner.node_id,
            "statusKind": runner.status_kind,
            "taskCount": len(runner.tasks),
        }
        for placement in placements
        for runner in placement.runners
    ]


def _shard(runner: RunnerSupervisorDiagnostics | PlacementRunnerDiagnostics) -> Row:
    return {
        "rankOf": f"{runner.device_rank}/{runner.world_size}",
        "layers": f"{runner.start_layer}-{runner.end_layer}/{runner.n_layers}",
    }


def _pairs(title: str, fields: Pairs, room: int | None) -> str:
    shown = [(name, plain(value)) for name, value in fields]
    return f"{title}\n{pairs(shown, room, INDENT, label=12)}"


def _table(
    title: str,
    columns: Iterable[Column],
    rows: Sequence[Row],
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


def _free_of(free: Memory, total: Memory) -> str:
    if not total.in_bytes:
        return "none"
    return f"{size_text(free.in_bytes)} free of {size_text(total.in_bytes)}"


def _used_of(used: int | None, total: int | None) -> str:
    if total is None:
        return EMPTY
    return f"{EMPTY if used is None else size_text(used)} used of {size_text(total)}"


def _unit(value: float | None, unit: str) -> str:
    return EMPTY if value is None else f"{value:.1f}{unit}"


def _joined(name: str | None, detail: str | None) -> str:
    return plain(name or detail) if not (name and detail) else f"{name} ({detail})"

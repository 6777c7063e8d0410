"""The facts for the health checks: a few requests to the daemon, and local files."""

from __future__ import annotations

import platform
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from skulkctl.cli import Invocation
from skulkctl.commands.nodes import warn_of_gaps
from skulkctl.daemon.client import Daemon
from skulkctl.daemon.members import CheckUp, reason
from skulkctl.daemon.nodes import DIAGNOSTICS_PATH, MEMBERS_PATH
from skulkctl.daemon.state import ClusterState
from skulkctl.doctor.checks import STORAGE_PATH
from skulkctl.doctor.facts import Facts
from skulkctl.errors import CliError, RouteMissing
from skulkctl.nodes.rows import node_items
from skulkctl.output.units import parse_time
from skulkctl.placement.instances import instance_items, waiting_items
from skulkctl.placement.ring import open_ring_links
from skulkctl.storage.rows import StorageItem, storage_items
from skulkd import __version__

if TYPE_CHECKING:
    from skulkd.wire.swarm import SwarmStatus
    from skulkd.wire.timeline import Timeline


def gather_facts(call: Invocation, expected_nodes: int | None, min_free_bytes: int | None) -> Facts:
    """Ask the daemon everything the checks need; raises Unreachable when nobody answers."""
    daemon = call.daemon
    state = daemon.state()
    asked_at = datetime.now(UTC)
    health = daemon.check_up(state.node_ids)
    warn_of_gaps(call.messages, health.members)
    lacks_ready, not_ready = _readiness(daemon)
    swarm = _swarm(daemon)
    storage = _storage(daemon, state)
    lacks = {
        "/readyz": lacks_ready,
        DIAGNOSTICS_PATH: health.diagnostics is None and not health.members.silent,
        MEMBERS_PATH: not health.has_members,
        "/v1/swarm": swarm is None,
        STORAGE_PATH: storage is None or not daemon.tells_all_storage(),
    }
    clock, members = state.server_clock, health.members
    return replace(
        local_facts(call),
        endpoint=daemon.endpoint,
        nodes=node_items(state, members),
        session=members.session,
        lost=members.lost,
        instances=[*instance_items(state), *waiting_items(daemon.placements())],
        silent=members.silent,
        lacks=frozenset(path for path, is_missing in lacks.items() if is_missing),
        not_ready=not_ready,
        warnings=members.warnings,
        config_problems=_config_problems(daemon),
        clock_offset_s=None if clock is None else (clock - asked_at).total_seconds(),
        node_clock_offsets_s=_clock_offsets(state, health),
        expected_nodes=expected_nodes,
        min_free_bytes=min_free_bytes,
        storage=storage,
        timeline=_timeline(daemon),
        swarm=swarm,
        open_ring_links=open_ring_links(state),
    )


def _timeline(daemon: Daemon) -> Timeline | None:
    """None when the server has none, or fails to collect it."""
    try:
        return daemon.timeline()
    except CliError:
        return None


def _storage(daemon: Daemon, state: ClusterState) -> Sequence[StorageItem] | None:
    """The storage of the nodes that tell it; None when nobody does."""
    try:
        return storage_items(daemon.storage(), state)
    except CliError:
        return None  # what is wrong with the daemon is for other checks to say


def _swarm(daemon: Daemon) -> SwarmStatus | None:
    """The state of the gateway node; None when the server has none."""
    from skulkd.wire.swarm import SwarmStatus

    try:
        return daemon.swarm()
    except RouteMissing:
        return None
    except CliError as error:
        return SwarmStatus(configured=True, problems=[reason(error)])


def local_facts(call: Invocation) -> Facts:
    """What is known without a daemon."""
    terminal = "a terminal" if sys.stdout.isatty() else "no terminal"
    system = f"{platform.system()} {platform.machine()}"
    return Facts(
        endpoint=call.target.context.endpoints[0],
        secret_modes=_secret_modes(call),
        client=f"skulkctl {__version__}, Python {platform.python_version()}, {system}, {terminal}",
    )


def _secret_modes(call: Invocation) -> Mapping[str, int]:
    from skulkd.settings.paths import expand_home

    token_file = call.target.context.token_file
    files = [call.paths.secret_file]
    files += [expand_home(token_file, call.environ)] if token_file else []
    return {str(path): mode for path in files if (mode := _mode(path)) is not None}


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None  # no such file, or not ours to look at: nothing to judge


def _readiness(daemon: Daemon) -> tuple[bool, str | None]:
    """Whether the server lacks /readyz, and why it is not ready."""
    try:
        daemon.ready()
    except RouteMissing:
        return True, None
    except CliError as error:
        return False, reason(error)
    return False, None


def _clock_offsets(state: ClusterState, health: CheckUp) -> Mapping[str, float]:
    if health.members.by_id or health.diagnostics is None:
        return {}  # measured by the nodes themselves, see `Facts.nodes`
    offsets = {}
    for node_id, bundle in health.diagnostics.items():
        clock = parse_time(bundle.generated_at)
        if clock is not None:
            offsets[state.node_name(node_id)] = (clock - state.now).total_seconds()
    return offsets


def _config_problems(daemon: Daemon) -> Sequence[str] | None:
    """Problems of the configuration that the server has on file; None when it gives none."""
    from skulkd.settings.check import check_raw
    from skulkd.settings.problems import SettingsError

    try:
        config = daemon.config().config
    except RouteMissing:
        return None
    except CliError as error:
        return [f"cannot be read: {reason(error)}"]
    try:
        check_raw(dict(config))
    except SettingsError as error:
        return [problem.render() for problem in error.problems]
    return []

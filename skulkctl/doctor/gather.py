"""The facts for the health checklist: a few questions to the daemon, a look at local files."""

from __future__ import annotations

import platform
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from skulkctl.client import Client
from skulkctl.commands.nodes import tell_gaps
from skulkctl.daemon.answers import is_missing_route, message_lines
from skulkctl.daemon.client import Daemon
from skulkctl.daemon.members import CheckUp
from skulkctl.daemon.nodes import DIAGNOSTICS_PATH, MEMBERS_PATH
from skulkctl.daemon.state import ClusterState
from skulkctl.doctor.checks import STORAGE_PATH
from skulkctl.doctor.facts import Facts
from skulkctl.errors import CliError
from skulkctl.invocation import Invocation
from skulkctl.nodes.rows import node_items
from skulkctl.placement.instances import instance_items, waiting_items
from skulkctl.placement.ring import open_ring_links
from skulkctl.storage.rows import StorageItem, storage_items
from skulkctl.units import parse_time
from skulkctl.views.read import Document, mapping
from skulkd import __version__


def gather_facts(call: Invocation, expected_nodes: int | None, min_free_bytes: int | None) -> Facts:
    """Ask the daemon everything the checks need; raises Unreachable when nobody answers."""
    daemon = call.daemon
    state = daemon.state()
    asked_at = datetime.now(UTC)
    health = daemon.check_up(state.node_ids)
    tell_gaps(call.talk, health.members)
    lacks_ready, not_ready = _readiness(call.client)
    swarm = _swarm(call.client)
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
        config_problems=_config_problems(call.client),
        clock_offset_s=None if clock is None else (clock - asked_at).total_seconds(),
        node_clock_offsets_s=_clock_offsets(state, health),
        expected_nodes=expected_nodes,
        min_free_bytes=min_free_bytes,
        storage=storage,
        timeline=_timeline(call.client, daemon),
        swarm=swarm,
        open_ring_links=open_ring_links(state),
    )


def _timeline(client: Client, daemon: Daemon) -> Document | None:
    """None when the server has none, or does not get it together."""
    from skulkctl.stock_timeline import complete_timeline
    from skulkctl.tui.feed import PATHS

    try:
        answer = client.get_first(*PATHS)
    except CliError:
        return None
    return complete_timeline(client, daemon, mapping(answer)) if answer else None


def _storage(daemon: Daemon, state: ClusterState) -> Sequence[StorageItem] | None:
    """The storage of the nodes that tell it; None when nobody does."""
    try:
        return storage_items(daemon.storage(), state)
    except CliError:
        return None  # what is wrong with the daemon is for other checks to say


def _swarm(client: Client) -> Document | None:
    """How the gateway node stands; None when the server has none."""
    try:
        answer = client.get_optional("/v1/swarm")
    except CliError as error:
        return {"configured": True, "problems": ["; ".join(error.why) or error.what]}
    return None if answer is None else mapping(answer)


def local_facts(call: Invocation) -> Facts:
    """What can be said without a daemon."""
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


def _readiness(client: Client) -> tuple[bool, str | None]:
    """Whether the server lacks /readyz, and why it is not ready."""
    answer = client.send("GET", "/readyz")
    if is_missing_route(answer):
        return True, None
    return False, None if answer.ok else "; ".join(message_lines(answer))


def _clock_offsets(state: ClusterState, health: CheckUp) -> Mapping[str, float]:
    if health.members.by_id or health.diagnostics is None:
        return {}  # measured by the nodes themselves, see `Facts.nodes`
    offsets = {}
    for node_id, bundle in health.diagnostics.items():
        told = parse_time(bundle.generated_at)
        if told is not None:
            offsets[state.node_name(node_id)] = (told - state.now).total_seconds()
    return offsets


def _config_problems(client: Client) -> Sequence[str] | None:
    """Problems of the configuration that the server has on file; None when it gives none."""
    from skulkd.settings.check import check_raw
    from skulkd.settings.problems import SettingsError

    try:
        answer = client.get_optional("/config")
    except CliError as error:
        return [f"cannot be read: {'; '.join(error.why) or error.what}"]
    if "config" not in mapping(answer):
        return None
    try:
        check_raw(dict(mapping(answer, "config")))
    except SettingsError as error:
        return [problem.render() for problem in error.problems]
    return []

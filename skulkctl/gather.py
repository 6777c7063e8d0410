"""The facts for the health checklist: a few questions to the daemon, a look at local files."""

from __future__ import annotations

import platform
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from skulkctl.answers import is_missing_route, message_lines
from skulkctl.checks import STORAGE_PATH, Facts
from skulkctl.client import Client
from skulkctl.errors import CliError
from skulkctl.fetch import (
    CLUSTER_PATH,
    MEMBERS_PATH,
    Roll,
    Snapshot,
    call_roll,
    fetch_members,
    fetch_placements,
    fetch_state,
)
from skulkctl.invocation import Invocation
from skulkctl.views.instances import instance_items, waiting_items
from skulkctl.views.nodes import node_name
from skulkctl.views.read import Document, mapping, moment, text
from skulkctl.views.ring import open_ring_links
from skulkctl.views.storage import local_item, storage_items
from skulkd import __version__


def gather_facts(call: Invocation, expected_nodes: int | None, min_free_bytes: int | None) -> Facts:
    """Ask the daemon everything the checks need; raises Unreachable when nobody answers."""
    client = call.client
    snapshot = fetch_state(client)
    asked_at = datetime.now(UTC)
    members = fetch_members(client, call.talk)
    roll = call_roll(client, snapshot.state, call.talk)
    if members is not None:
        roll = replace(
            roll,
            master_id=members.master_id,
            silent={**roll.silent, **members.silent},
            members=members.members,
            session=members.session,
            lost=members.lost,
        )
    lacks_ready, not_ready = _readiness(client)
    lacks = {"/readyz"} if lacks_ready else set()
    if roll.diagnostics is None and not roll.silent:
        lacks.add(CLUSTER_PATH)
    if members is None:
        lacks.add(MEMBERS_PATH)
    swarm = _swarm(client)
    if swarm is None:
        lacks.add("/v1/swarm")
    storage, whole = _storage(client, snapshot)
    if not whole:
        lacks.add(STORAGE_PATH)
    clock = snapshot.server_clock
    return replace(
        local_facts(call),
        endpoint=client.endpoint,
        nodes=snapshot.nodes(roll),
        session=roll.session,
        lost=roll.lost,
        instances=[
            *instance_items(snapshot.state),
            *waiting_items(fetch_placements(client, call.talk)),
        ],
        silent=roll.silent,
        lacks=frozenset(lacks),
        not_ready=not_ready,
        warnings=roll.warnings(),
        config_problems=_config_problems(client),
        clock_offset_s=None if clock is None else (clock - asked_at).total_seconds(),
        node_clock_offsets_s=_clock_offsets(snapshot.state, roll, snapshot.now),
        expected_nodes=expected_nodes,
        min_free_bytes=min_free_bytes,
        storage=storage,
        timeline=_timeline(client),
        swarm=swarm,
        open_ring_links=open_ring_links(snapshot.state),
    )


def _timeline(client: Client) -> Document | None:
    """None when the server has none, or does not get it together."""
    from skulkctl.stock_timeline import complete_timeline
    from skulkctl.tui.feed import PATHS

    try:
        answer = client.get_first(*PATHS)
    except CliError:
        return None
    return complete_timeline(client, mapping(answer)) if answer else None


def _storage(client: Client, snapshot: Snapshot) -> tuple[Sequence[Document] | None, bool]:
    """The storage of the nodes, None when nobody tells; and whether all nodes were asked."""
    try:
        answer = client.get_optional(STORAGE_PATH)
        whole = answer is not None
        if answer is None:
            # A stock node tells only of itself.
            summary = client.get_optional("/store/storage")
            name = node_name(snapshot.state, text(summary, "nodeId") or "")
            answer = None if summary is None else local_item(summary, name)
    except CliError:
        return None, False  # what is wrong with the daemon is for other checks to say
    return (None if answer is None else storage_items(answer, snapshot.now)), whole


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


def _clock_offsets(state: Document, roll: Roll, now: datetime) -> Mapping[str, float]:
    if roll.members:
        return {}  # measured by the nodes themselves, see `Facts.nodes`
    offsets = {}
    for node_id, bundle in (roll.diagnostics or {}).items():
        told = moment(bundle, "generatedAt")
        if told is not None:
            offsets[node_name(state, node_id)] = (told - now).total_seconds()
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

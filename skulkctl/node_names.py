"""Names for completion: from the daemon within 300 ms, else as they were last time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from skulkctl.contexts import resolve
from skulkctl.daemon.calls import Steps
from skulkctl.daemon.client import Daemon
from skulkctl.daemon.deadline import call_within
from skulkctl.daemon.state import ClusterState
from skulkctl.errors import CliError
from skulkctl.nodes.rows import node_items
from skulkctl.views.read import mapping
from skulkd.settings.files import make_private_dir, write_atomic
from skulkd.settings.paths import find_paths
from skulkd.settings.problems import SettingsError

T = TypeVar("T")

LIMIT_S = 0.3

Name = tuple[str, str]
"""What is typed, and a word about it."""


def node_names(options: Mapping[str, str], environ: Mapping[str, str]) -> list[Name]:
    """Name and id of every node; empty, and silent, when nothing is known."""
    return known_names("", Daemon.state.steps, _nodes, options, environ)


def known_names(
    kind: str,
    fetch: Callable[[], Steps[T]],
    names_of: Callable[[T], list[Name]],
    options: Mapping[str, str],
    environ: Mapping[str, str],
) -> list[Name]:
    """The names in what the daemon answers within the limit, else those of last time."""
    try:
        paths = find_paths(environ)
        target = resolve(paths, environ, options.get("endpoint"), options.get("context"))
    except (CliError, SettingsError):
        return []
    key = " ".join([*target.context.endpoints, *([kind] if kind else [])])
    daemon = Daemon(target, LIMIT_S)
    # The limit is for the daemon: modules are imported before, and names are read after.
    daemon.prepare()
    try:
        answer = call_within(LIMIT_S, lambda: daemon.run(fetch()))
    except (CliError, TimeoutError):
        return _remembered(paths.completion_cache, key)
    finally:
        daemon.close()
    names = names_of(answer)
    _remember(paths.completion_cache, key, names)
    return names


def _nodes(state: ClusterState) -> list[Name]:
    return [(node["name"], node["id"]) for node in node_items(state)]


def _remembered(cache: Path, key: str) -> list[Name]:
    names = mapping(_read(cache), key)
    return [(name, str(about)) for name, about in names.items()]


def _remember(cache: Path, key: str, names: list[Name]) -> None:
    known = _read(cache)
    if dict(mapping(known, key)) == dict(names):
        return
    document = {**mapping(known), key: dict(names)}
    try:
        make_private_dir(cache.parent)
        write_atomic(cache, json.dumps(document).encode())
    except OSError:
        return  # a read-only home only means that nothing is remembered


def _read(cache: Path) -> object:
    try:
        document: object = json.loads(cache.read_bytes())
    except (OSError, ValueError):
        return {}
    return document

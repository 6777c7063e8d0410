"""Names for completion: from the daemon within 300 ms, else as they were last time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from skulkctl.client import Client
from skulkctl.contexts import resolve
from skulkctl.deadline import call_within
from skulkctl.errors import CliError
from skulkctl.fetch import fetch_state
from skulkctl.views.read import mapping
from skulkd.settings.files import make_private_dir, write_atomic
from skulkd.settings.paths import find_paths
from skulkd.settings.problems import SettingsError

LIMIT_S = 0.3

Name = tuple[str, str]
"""What is typed, and a word about it."""


def node_names(options: Mapping[str, str], environ: Mapping[str, str]) -> list[Name]:
    """Name and id of every node; empty, and silent, when nothing is known."""
    return known_names("", _nodes, options, environ)


def known_names(
    kind: str,
    ask: Callable[[Client], list[Name]],
    options: Mapping[str, str],
    environ: Mapping[str, str],
) -> list[Name]:
    """What `ask` learns from the daemon within the limit, else what it learned last time."""
    try:
        paths = find_paths(environ)
        target = resolve(paths, environ, options.get("endpoint"), options.get("context"))
    except (CliError, SettingsError):
        return []
    key = " ".join([*target.context.endpoints, *([kind] if kind else [])])
    try:
        names = call_within(LIMIT_S, lambda: ask(Client(target, LIMIT_S)))
    except (CliError, TimeoutError):
        return _remembered(paths.completion_cache, key)
    _remember(paths.completion_cache, key, names)
    return names


def _nodes(client: Client) -> list[Name]:
    nodes = fetch_state(client).nodes()
    return [(str(node["name"]), str(node["id"])) for node in nodes]


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

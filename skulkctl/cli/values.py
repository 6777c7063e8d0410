"""What Typer offers for a value while a command line is typed; see `autocompletion=`.

What the daemon knows is asked within 300 ms, else it is as it was last time. Nothing here may
print or raise: it would spoil the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar, cast

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from skulkctl.cli.invocation import Invocation
    from skulkctl.daemon.calls import Steps
    from skulkctl.daemon.state import ClusterState

T = TypeVar("T")
Values = list[tuple[str, str]]
"""What may be typed, each with a word about it."""

LIMIT_S = 0.3


def nodes(ctx: typer.Context) -> Values:
    """The names of all nodes, with their ids."""
    from skulkctl.nodes.rows import node_items

    return _from_state(ctx, "nodes", lambda state: {n["name"]: n["id"] for n in node_items(state)})


def models(ctx: typer.Context) -> Values:
    """Every model of the catalogue."""
    from skulkctl.daemon.client import Daemon

    return _from_daemon(
        ctx, "models", Daemon.models.steps, lambda listed: {m.id: "" for m in listed.data}
    )


def placed_models(ctx: typer.Context) -> Values:
    """The models that are placed, with their status."""
    from skulkctl.placement.instances import instance_items

    return _from_state(
        ctx, "placed", lambda state: {i["modelId"]: i["status"] for i in instance_items(state)}
    )


def instances(ctx: typer.Context) -> Values:
    """The ids of all instances, with their models."""
    from skulkctl.placement.instances import instance_items

    return _from_state(
        ctx, "instances", lambda state: {i["id"]: i["modelId"] for i in instance_items(state)}
    )


def tasks(ctx: typer.Context) -> Values:
    """The command ids of the requests that are open, with their models."""
    from skulkctl.placement.requests import request_items

    return _from_state(
        ctx,
        "tasks",
        lambda state: {r["commandId"]: r["modelId"] or "" for r in request_items(state)},
    )


def tokens(ctx: typer.Context) -> Values:
    """The names of all access tokens, with their scopes."""
    from skulkctl.daemon.client import Daemon

    return _from_daemon(
        ctx,
        "tokens",
        Daemon.tokens.steps,
        lambda listed: {token.name: ", ".join(token.scopes) for token in listed.tokens},
    )


def contexts(ctx: typer.Context) -> Values:
    """The contexts of the context file, with their endpoints."""
    from skulkctl.contexts import read_contexts
    from skulkctl.errors import CliError

    try:
        known = read_contexts(_call(ctx).paths.contexts_file).contexts
    except CliError:
        return []
    return [(name, " ".join(context.endpoints)) for name, context in known.items()]


def config_keys() -> Values:
    """The keys of skulk.yaml, except those with a name of the user's own in them."""
    from skulkd.settings.schema import schema_keys

    return [(key.name, key.description) for key in schema_keys() if "<" not in key.name]


def config_values(ctx: typer.Context) -> list[str]:
    """What the key before it may be set to, where that is a closed set."""
    from skulkd.settings.schema import schema_keys

    for key in schema_keys():
        if key.name == ctx.params.get("key"):
            return ["true", "false"] if key.kind == "boolean" else list(key.choices)
    return []


def columns(ctx: typer.Context, incomplete: str) -> Values:
    """Columns of the command at hand, continuing a list that has been begun."""
    from skulkctl.cli.resources import RESOURCES

    resource = RESOURCES.get(ctx.command_path.partition(" ")[2])
    about = {column.name: column.about for column in resource.columns} if resource else {}
    return [(value, about[value.rpartition(",")[2]]) for value in continued(about, incomplete)]


def event_kinds(incomplete: str) -> list[str]:
    from skulkd.wire.events import EVENT_KINDS

    return continued(EVENT_KINDS, incomplete)


def scopes(incomplete: str) -> list[str]:
    from skulkd.wire.tokens import SCOPES

    return continued(SCOPES, incomplete)


def topics() -> Values:
    """Help topics and commands."""
    from skulkctl.cli.root import COMMANDS
    from skulkctl.cli.topics import TOPICS

    return [*((topic, "") for topic in TOPICS), *((n, e.summary) for n, e in COMMANDS.items())]


def commands() -> Values:
    """Commands with a man page, and the daemon."""
    from skulkctl.cli.root import COMMANDS

    return [*((name, entry.summary) for name, entry in COMMANDS.items()), ("skulkd", "the daemon")]


def continued(words: Iterable[str], incomplete: str) -> list[str]:
    """`a,b,` with each word that is not in it yet."""
    begun, comma, _ = incomplete.rpartition(",")
    return [f"{begun}{comma}{word}" for word in words if word not in begun.split(",")]


def _call(ctx: typer.Context) -> Invocation:
    # Typer calls with the context of one of our commands, which is an Invocation.
    return cast("Invocation", ctx)


def _from_state(
    ctx: typer.Context, kind: str, names_of: Callable[[ClusterState], dict[str, str]]
) -> Values:
    from skulkctl.daemon.client import Daemon

    return _from_daemon(ctx, kind, Daemon.state.steps, names_of)


def _from_daemon(
    ctx: typer.Context,
    kind: str,
    fetch: Callable[[], Steps[T]],
    names_of: Callable[[T], dict[str, str]],
) -> Values:
    """The names in what the daemon answers within the limit, else those of last time."""
    from skulkctl.daemon.client import Daemon
    from skulkctl.daemon.deadline import call_within
    from skulkctl.errors import CliError

    try:
        target, cache = _call(ctx).target, _call(ctx).paths.completion_cache
    except CliError:
        return []
    key = " ".join([*target.context.endpoints, kind])
    daemon = Daemon(target, LIMIT_S)
    # The limit is for the daemon: modules are imported before, and names are read after.
    daemon.prepare()
    try:
        answer = call_within(LIMIT_S, lambda: daemon.run(fetch()))
    except (CliError, TimeoutError):
        return list(_read(cache).get(key, {}).items())
    finally:
        daemon.close()
    names = names_of(answer)
    _remember(cache, key, names)
    return list(names.items())


def _remember(cache: Path, key: str, names: dict[str, str]) -> None:
    import json

    from skulkd.settings.files import make_private_dir, write_atomic

    known = _read(cache)
    if known.get(key) == names:
        return
    try:
        make_private_dir(cache.parent)
        write_atomic(cache, json.dumps({**known, key: names}).encode())
    except OSError:
        return  # a read-only home only means that nothing is remembered


def _read(cache: Path) -> dict[str, dict[str, str]]:
    """What `_remember` wrote; nothing when it is unreadable."""
    import json

    try:
        known = json.loads(cache.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(known, dict):
        return {}
    return {key: names for key, names in known.items() if isinstance(names, dict)}

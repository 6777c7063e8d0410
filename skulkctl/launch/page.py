"""What `skulkctl launch` prints: lines for a shell, or a document. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TypedDict

from skulkctl.launch.keys import Key
from skulkctl.launch.tools import RECIPES, Cluster, Tool, settings


class KeyItem(TypedDict):
    variable: str
    source: str
    file: str | None


class LaunchItem(TypedDict):
    tool: str
    endpoint: str
    model: str
    environment: Mapping[str, str | None]
    key: KeyItem
    config: str | None
    command: Sequence[str]


def launch_item(tool: Tool, cluster: Cluster, key: Key, *, show_token: bool) -> LaunchItem:
    """All that there is to know; a secret is null unless it was asked for."""
    recipe = RECIPES[tool]
    hidden = key.is_secret and not show_token
    return {
        "tool": tool.value,
        "endpoint": cluster.url,
        "model": cluster.model,
        "environment": {**settings(tool, cluster), recipe.key: None if hidden else key.value},
        "key": {"variable": recipe.key, "source": key.source, "file": key.file},
        "config": None if recipe.config is None else recipe.config(cluster),
        "command": list(recipe.command),
    }


def assignments(tool: Tool, cluster: Cluster, key: Key, *, show_token: bool) -> list[str]:
    """`NAME=value` for a shell, the key last. The shell reads a token that is not shown."""
    value = shlex.quote(key.value) if show_token and key.value is not None else key.shell
    known = [f"{name}={shlex.quote(text)}" for name, text in settings(tool, cluster).items()]
    return [*known, f"{RECIPES[tool].key}={value}"]


def page(tool: Tool, cluster: Cluster, key: Key, *, show_token: bool) -> str:
    """Lines that a shell can evaluate, or a configuration file with them as comments."""
    recipe = RECIPES[tool]
    exports = [f"export {line}" for line in assignments(tool, cluster, key, show_token=show_token)]
    head = [f"# {tool.value} with {cluster.model} at {cluster.url}"]
    head += [f"# {recipe.note}"] if recipe.note else []
    if recipe.config is not None:
        comments = [f"# {line}" for line in exports]
        return "\n".join([*head, *comments, recipe.config(cluster)])
    tail = [f"# then run: {shlex.join(recipe.command)}"] if recipe.command else []
    return "\n".join([*head, *exports, *tail]) + "\n"

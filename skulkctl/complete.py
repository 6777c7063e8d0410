"""What could come next on a command line: commands, options, values.

Walks the command tree; only names of nodes, models, instances and requests need a daemon, and
those have 300 ms.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skulkctl.command import help_of, is_argument, new_context

Item = tuple[str, str]
"""A value and a line about it."""

FILE: Item = (":files", "")
"""Tells the shell to complete file names itself."""


@dataclass
class Line:
    """A command line up to the cursor, understood as far as possible."""

    command: Any
    context: Any
    options: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    pending: Any = None
    incomplete: str = ""


def complete(words: Sequence[str], root: Any) -> list[Item]:
    """The candidates for the last of `words`, which may be empty."""
    *done, incomplete = list(words) or [""]
    line = read_line(done, root)
    _enter_default(line, incomplete)
    prefix = ""
    if incomplete.startswith("--") and "=" in incomplete:
        name, _, incomplete = incomplete.partition("=")
        line.pending, prefix = _option(line.command, name), f"{name}="
        if line.pending is None:
            return []
    line.incomplete = incomplete
    found = list(_candidates(line))
    if found == [FILE]:
        return found
    matching = [(value, about) for value, about in found if value.startswith(incomplete)]
    return [(f"{prefix}{value}", about) for value, about in matching]


def read_line(words: Iterable[str], root: Any) -> Line:
    """Follow the words through the command tree."""
    line = Line(root, new_context(root, "skulkctl"))
    for word in words:
        _enter_default(line, word)
        if line.pending is not None:
            line.options[line.pending.name] = word
            line.pending = None
        elif word.startswith("-") and word != "-":
            name, equals, value = word.partition("=")
            option = _option(line.command, name)
            if option is not None and not option.is_flag:
                if equals:
                    line.options[option.name] = value
                else:
                    line.pending = option
        elif hasattr(line.command, "get_command"):
            found = line.command.get_command(line.context, word)
            if found is None:
                return Line(root, line.context, pending=_NOTHING)
            line.context = new_context(found, found.name or word, line.context)
            line.command = found
        else:
            line.arguments.append(word)
    return line


def _enter_default(line: Line, word: str) -> None:
    """An option behind a noun that lists its objects belongs to the listing."""
    default = getattr(line.command, "default", None)
    if line.pending is None and default is not None and word.startswith("-"):
        line.command = line.command.get_command(line.context, default)
        line.context = new_context(line.command, default, line.context)


class _Nothing:
    """Stands for a place where nothing can be completed."""

    name = ""


_NOTHING = _Nothing()


def _option(command: Any, name: str) -> Any:
    for param in command.params:
        if not is_argument(param) and name in (*param.opts, *param.secondary_opts):
            return param
    return None


def _candidates(line: Line) -> Iterable[Item]:
    if line.pending is not None:
        return _values(line, line.pending.name)
    if line.incomplete.startswith("-"):
        return _options(line)
    if hasattr(line.command, "list_commands"):
        return _commands(line)
    arguments = [param for param in line.command.params if is_argument(param)]
    position = len(line.arguments)
    if position < len(arguments):
        return _values(line, arguments[position].name)
    if arguments and arguments[-1].nargs == -1:
        return _values(line, arguments[-1].name)
    return []


def _options(line: Line) -> list[Item]:
    return [
        (name, help_of(param))
        for param in line.command.get_params(line.context)
        if not is_argument(param) and param.name not in line.options
        for name in sorted((*param.opts, *param.secondary_opts), key=len)
    ]


def _commands(line: Line) -> list[Item]:
    entries = getattr(line.command, "entries", None)
    if entries:
        return [(name, entry.summary) for name, entry in entries.items() if not entry.hidden]
    return [
        (name, line.command.get_command(line.context, name).get_short_help_str(80))
        for name in line.command.list_commands(line.context)
    ]


def _values(line: Line, name: str) -> Iterable[Item]:
    source = VALUES.get(name)
    return source(line) if source else []


def _words(words: Mapping[str, str] | Iterable[str]) -> list[Item]:
    return list(words.items()) if isinstance(words, Mapping) else [(word, "") for word in words]


def _formats(line: Line) -> list[Item]:
    from skulkctl.topics import FORMATS

    return _words(FORMATS)


def _colours(line: Line) -> list[Item]:
    from skulkctl.screen import COLOUR_CHOICES

    return _words(COLOUR_CHOICES)


def _methods(line: Line) -> list[Item]:
    from skulkctl.commands.api import METHODS

    return _words(METHODS)


def _shells(line: Line) -> list[Item]:
    from skulkctl.shells import SCRIPTS

    return _words(SCRIPTS.keys())


def _topics(line: Line) -> list[Item]:
    from skulkctl.root import COMMANDS
    from skulkctl.topics import TOPICS

    commands = {name: entry.summary for name, entry in COMMANDS.items() if not entry.hidden}
    return [*_words(TOPICS.keys()), *_words(commands)]


def _columns(line: Line) -> list[Item]:
    """Columns of the command at hand, continuing a list that has been begun."""
    from skulkctl.resources import RESOURCES

    resource = RESOURCES.get(line.context.command_path.removeprefix("skulkctl "))
    if resource is None:
        return []
    begun, comma, _ = line.incomplete.rpartition(",")
    chosen = begun.split(",")
    minus = "-" if line.incomplete.startswith("-") else ""
    return [
        (f"{begun}{comma}{minus}{column.name}", column.about)
        for column in resource.columns
        if column.name not in chosen
    ]


def _contexts(line: Line) -> list[Item]:
    from skulkctl.contexts import read_contexts
    from skulkctl.errors import CliError
    from skulkd.settings.paths import find_paths

    try:
        contexts = read_contexts(find_paths(os.environ).contexts_file).contexts
    except CliError:
        return []  # a completion must never print an error over the prompt
    return [(name, " ".join(context.endpoints)) for name, context in contexts.items()]


def _keys(line: Line) -> list[Item]:
    from skulkd.settings.schema import schema_keys

    return [(key.name, key.description) for key in schema_keys() if "<" not in key.name]


def _key_values(line: Line) -> list[Item]:
    from skulkd.settings.schema import schema_keys

    typed = line.arguments[0] if line.arguments else ""
    for key in schema_keys():
        if key.name == typed:
            return _words(("true", "false") if key.kind == "boolean" else key.choices)
    return []


def _nodes(line: Line) -> list[Item]:
    from skulkctl.node_names import node_names

    return [] if line.arguments else node_names(line.options, os.environ)


def _excluded_nodes(line: Line) -> list[Item]:
    from skulkctl.node_names import node_names

    return node_names(line.options, os.environ)


def _models(line: Line) -> list[Item]:
    from skulkctl.placed_names import model_names

    return model_names(line.options, os.environ)


def _placed_models(line: Line) -> list[Item]:
    from skulkctl.placed_names import placed_model_names

    return placed_model_names(line.options, os.environ)


def _instances(line: Line) -> list[Item]:
    from skulkctl.placed_names import instance_names

    return instance_names(line.options, os.environ)


def _tasks(line: Line) -> list[Item]:
    from skulkctl.placed_names import task_names

    return task_names(line.options, os.environ)


def _sources(line: Line) -> list[Item]:
    from skulkctl.commands.model import SOURCES

    return _words(SOURCES)


def _shardings(line: Line) -> list[Item]:
    from skulkctl.placement.plans import SHARDINGS

    return _words(SHARDINGS)


def _metas(line: Line) -> list[Item]:
    from skulkctl.placement.plans import METAS

    return _words(METAS)


def _goals(line: Line) -> list[Item]:
    from skulkctl.placement.waiting import GOALS

    return _words(GOALS)


def _ends(line: Line) -> list[Item]:
    from skulkctl.placement.waiting import ENDS

    return _words((*ENDS, ",".join(ENDS), "none"))


def _event_kinds(line: Line) -> list[Item]:
    from skulkd.wire.events import EVENT_KINDS

    begun, comma, _ = line.incomplete.rpartition(",")
    return [(f"{begun}{comma}{kind}", "") for kind in EVENT_KINDS if kind not in begun.split(",")]


def _scopes(line: Line) -> list[Item]:
    from skulkd.wire.tokens import SCOPES

    begun, comma, _ = line.incomplete.rpartition(",")
    return [(f"{begun}{comma}{scope}", "") for scope in SCOPES if scope not in begun.split(",")]


def _tokens(line: Line) -> list[Item]:
    from skulkctl.placed_names import token_names

    return token_names(line.options, os.environ)


def _files(line: Line) -> list[Item]:
    return [FILE]


def _paths(line: Line) -> list[Item]:
    """Files, where a path is one of this machine and not of the API."""
    return [] if line.context.command_path == "skulkctl api" else [FILE]


VALUES: Mapping[str, Callable[[Line], Iterable[Item]]] = {
    "output": _formats,
    "color": _colours,
    "context": _contexts,
    "columns": _columns,
    "sort": _columns,
    "node": _nodes,
    "exclude": _excluded_nodes,
    "only": _excluded_nodes,
    "model": _models,
    "new": _models,
    "old": _instances,
    "placed": _placed_models,
    "instance": _instances,
    "task": _tasks,
    "source": _sources,
    "sharding": _shardings,
    "instance_meta": _metas,
    "kind": _event_kinds,
    "goal": _goals,
    "fail_on": _ends,
    "confirm": _nodes,
    "name": _contexts,
    "key": _keys,
    "value": _key_values,
    "file": _files,
    "path": _paths,
    "scope": _scopes,
    "token": _tokens,
    "token_file": _files,
    "method": _methods,
    "shell": _shells,
    "topic": _topics,
}
"""Parameter name to the source of its values; what is not here has none."""

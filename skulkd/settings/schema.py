"""The keys of `skulk.yaml` as a flat list, read off the models so that nothing is written twice.

Must not know files, environment or values in use.
"""

import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from skulkd.settings.problems import Problem, SettingsError, nearest
from skulkd.wire.config import ConfigSection, SkulkConfig

Path = tuple[str, ...]
Kind = Literal["text", "integer", "number", "boolean", "list", "choice"]

ANY_NODE = "<node>"
"""Stands for an operator's own key: the name of a node in `node_overrides`."""

_KINDS: dict[object, Kind] = {str: "text", int: "integer", float: "number", bool: "boolean"}
_SEGMENT = re.compile(r'(?:"([^"]+)"|([^".]+))(\.|$)')


@dataclass(frozen=True, slots=True)
class Key:
    """One settable value."""

    path: Path
    kind: Kind
    default: object
    required: bool
    nullable: bool
    secret: bool
    choices: tuple[str, ...]
    description: str

    @property
    def name(self) -> str:
        return join_key(self.path)


Section = dict[str, "Key | Section"]


def schema_keys() -> tuple[Key, ...]:
    """Every key, in the order of the schema. A node's own key is shown as `<node>`."""
    return tuple(_flat(_tree()))


def secret_paths() -> tuple[Path, ...]:
    """The keys whose values nobody may see."""
    return tuple(key.path for key in schema_keys() if key.secret)


def find(path: Path) -> "Key | Section | None":
    """The key or section at this path; None when the schema has no such thing."""
    here: Key | Section = _tree()
    for part in path:
        if not isinstance(here, dict):
            return None
        step = here.get(part) or here.get(ANY_NODE)
        if step is None:
            return None
        here = step
    return here


def require_key(name: str) -> tuple[Path, "Key | Section"]:
    """Look up a dotted key. Raises SettingsError that names the nearest valid one."""
    path = split_key(name)
    found = find(path)
    if found is None:
        raise SettingsError([Problem("unknown key", key=name, suggestion=suggest(path))])
    return path, found


def suggest(path: Path) -> str | None:
    """The nearest valid spelling of an unknown key: a sibling, else the same word elsewhere."""
    depth = next((n for n in range(1, len(path)) if find(path[:n]) is None), len(path))
    parent = find(path[: depth - 1])
    siblings = [name for name in parent if name != ANY_NODE] if isinstance(parent, dict) else []
    elsewhere = {key.path[-1]: key.name for key in reversed(schema_keys())}
    if path[-1] in elsewhere and depth == len(path):
        return elsewhere[path[-1]]
    near = nearest(path[depth - 1], siblings)
    if near is None:
        far = nearest(path[-1], elsewhere)
        return None if far is None else elsewhere[far]
    if depth == len(path):
        return near
    whole = (*path[: depth - 1], near, *path[depth:])
    return join_key(whole if find(whole) else whole[:depth])


def split_key(name: str) -> Path:
    """`a.b."c.d"` to its parts. Raises SettingsError when it is not a dotted key."""
    parts: list[str] = []
    position = 0
    while (match := _SEGMENT.match(name, position)) is not None:
        parts.append(match[1] or match[2])
        position = match.end()
        if not match[3]:
            return tuple(parts)
    raise SettingsError([Problem('not a key; write parts with dots, odd ones as "x.y"', key=name)])


def join_key(path: tuple[str | int, ...]) -> str:
    """The dotted form of a path; a part with a dot is quoted, a list index is bracketed."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            quoted = f'"{part}"' if "." in part or not part else part
            text += f".{quoted}" if text else quoted
    return text


@cache
def _tree() -> Section:
    return _section(SkulkConfig, ())


def _section(model: type[ConfigSection], path: Path) -> Section:
    return {
        name: _entry(field, (*path, name), _unwrap(field.annotation))
        for name, field in model.model_fields.items()
    }


def _entry(field: FieldInfo, path: Path, shape: Any) -> "Key | Section":
    if isinstance(shape, type) and issubclass(shape, ConfigSection):
        return _section(shape, path)
    origin = get_origin(shape)
    if origin is dict:
        model = _unwrap(get_args(shape)[1])
        return {ANY_NODE: _section(model, (*path, ANY_NODE))}
    choices: tuple[str, ...] = get_args(shape) if origin is Literal else ()
    kind: Kind = "choice" if choices else "list" if origin is list else _KINDS[shape]
    return Key(
        path=path,
        kind=kind,
        # What an override does not say is inherited, so it has no default of its own.
        default=None if field.is_required() or ANY_NODE in path else field.default,
        required=field.is_required(),
        nullable=type(None) in get_args(field.annotation),
        # A field kept out of the model's repr is a secret; nothing else is hidden there.
        secret=not field.repr,
        choices=choices,
        description=field.description or "",
    )


def _unwrap(annotation: Any) -> Any:
    """The type under Annotated and `| None`."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _unwrap(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return _unwrap(next(arg for arg in get_args(annotation) if arg is not type(None)))
    return annotation


def _flat(section: Section) -> Iterator[Key]:
    for entry in section.values():
        if isinstance(entry, Key):
            yield entry
        else:
            yield from _flat(entry)

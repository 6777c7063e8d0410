"""Changes to the plain data of a settings file, as values: put, set, unset, redact.

Pure. Must not read or write files: see `writer`.
"""

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple

from skulkd.settings.check import check_raw
from skulkd.settings.convert import from_text
from skulkd.settings.problems import Problem, SettingsError, shown
from skulkd.settings.schema import ANY_NODE, Key, require_key, secret_paths

Raw = dict[str, Any]


class Put(NamedTuple):
    """The result of a put: the new data and the top-level keys that differ from before."""

    raw: Raw
    changed: frozenset[str]


def apply_put(raw: Mapping[str, Any], body: Mapping[str, Any]) -> Put:
    """What the file should say after a put of `body`.

    A section that the body omits is kept, null removes it, anything else replaces it. A secret
    that the body omits from a section is kept, because a reader of the settings never saw it.
    Raises SettingsError when the result would not be valid.
    """
    new: Raw = dict(raw)
    for name, section in body.items():
        if section is None:
            new.pop(name, None)
        else:
            new[name] = _with_old_secrets(name, raw.get(name), section)
    # Before anything walks the body: it may be nested deeper than Python can follow.
    check_raw(new)
    return Put(deepcopy(new), changed_sections(raw, new))


def changed_sections(old: Mapping[str, Any], new: Mapping[str, Any]) -> frozenset[str]:
    """Top-level keys with different values. Null and absent are the same; 1, 1.0, true are not."""
    return frozenset(
        name for name in {*old, *new} if spelled(old.get(name)) != spelled(new.get(name))
    )


def spelled(value: object) -> str:
    """Data as JSON text, to compare it: in Python 1, 1.0 and True are equal."""
    return json.dumps(value, sort_keys=True, default=repr)


def redact(raw: Mapping[str, Any]) -> Raw:
    """The same data without the secrets."""
    shown_data: Raw = deepcopy(dict(raw))
    for path in secret_paths():
        _remove(shown_data, path)
    return shown_data


def holds_secret(raw: Mapping[str, Any]) -> bool:
    """Whether there is a secret in this data."""
    return any(_get(raw, path) is not None for path in secret_paths())


def set_key(raw: Mapping[str, Any], name: str, value: object) -> Raw:
    """The same data with one key set. Raises SettingsError when there is no such key."""
    path, _ = require_key(name)
    new: Raw = deepcopy(dict(raw))
    here = new
    for part in path[:-1]:
        if not isinstance(here.get(part), dict):
            here[part] = {}
        here = here[part]
    here[path[-1]] = deepcopy(value)
    return new


def unset_key(raw: Mapping[str, Any], name: str) -> Raw:
    """The same data without one key or section. Raises SettingsError for an unknown key."""
    path, _ = require_key(name)
    new: Raw = deepcopy(dict(raw))
    _remove(new, path)
    return new


def parse_value(name: str, text: str) -> object:
    """The value that a text on the command line means for this key.

    `null` or `~` is null where the key allows it; a list is separated by commas. Raises
    SettingsError when the key is unknown or a section, or the text is of the wrong type.
    """
    _, key = require_key(name)
    if not isinstance(key, Key):
        parts = ", ".join(part for part in key if part != ANY_NODE) or ANY_NODE
        message = f"this is a section; set one of its keys: {parts}"
        raise SettingsError([Problem(message, key=name)])
    if key.nullable and text in ("null", "~"):
        return None
    try:
        return from_text(key, text)
    except ValueError as error:
        value = None if key.secret else shown(text)
        raise SettingsError([Problem(str(error), key=name, value=value)]) from None


def _with_old_secrets(name: str, old: object, new: object) -> object:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    # Every secret stands directly in its section, so one level is all there is.
    inner = [path[1] for path in secret_paths() if path[0] == name and len(path) > 1]
    return {key: old[key] for key in inner if key in old} | new


def _get(raw: Mapping[str, Any], path: tuple[str, ...]) -> object:
    here: object = raw
    for part in path:
        if not isinstance(here, Mapping):
            return None
        here = here.get(part)
    return here


def _remove(raw: Raw, path: tuple[str, ...]) -> None:
    parent = _get(raw, path[:-1])
    if isinstance(parent, dict):
        parent.pop(path[-1], None)

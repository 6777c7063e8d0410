"""One change to the configuration, planned before anything is sent.

Knows the schema through skulkd.settings; must not talk to a daemon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skulkctl.errors import CliError, NotFound, Refused
from skulkctl.output.tables import EMPTY
from skulkctl.settings.rows import HIDDEN, value_text
from skulkd.settings.check import check_raw
from skulkd.settings.edit import parse_value, set_key, unset_key
from skulkd.settings.problems import SettingsError
from skulkd.settings.schema import Key, join_key, require_key, secret_paths


@dataclass(frozen=True)
class Change:
    """Old and new value of one key, and the whole configuration to send."""

    key: str
    old: object
    new: object
    secret: bool
    body: Mapping[str, Any]

    def line(self) -> str:
        old, new = value_text(self.old), value_text(self.new)
        if self.secret:
            old, new = HIDDEN, HIDDEN if self.new is not None else EMPTY
        return f"{self.key}: {old} -> {new}"

    def document(self) -> dict[str, object]:
        if self.secret:
            return {"key": self.key, "old": None, "new": None, "secret": True}
        return {"key": self.key, "old": self.old, "new": self.new, "secret": False}


def secret_names() -> frozenset[str]:
    return frozenset(join_key(path) for path in secret_paths())


def is_secret(key: str) -> bool:
    """Whether the key holds a secret; raises NotFound for an unknown key."""
    try:
        _, found = require_key(key)
    except SettingsError as error:
        raise NotFound(
            f"no configuration key named {key}", *_lines(error), hints=["skulkctl config show"]
        ) from None
    return isinstance(found, Key) and found.secret


def plan_set(config: Mapping[str, Any], key: str, typed: str) -> Change:
    """Set a key to what was typed; raises Refused when the result would not be valid."""
    secret = is_secret(key)
    try:
        new = parse_value(key, typed)
        body = set_key(config, key, new)
        check_raw(body)
    except SettingsError as error:
        raise _refused(key, error) from None
    return Change(key, _old(config, key), new, secret, body)


def plan_unset(config: Mapping[str, Any], key: str) -> Change:
    """Remove a key; raises Refused when the result would not be valid."""
    secret = is_secret(key)
    try:
        body = unset_key(config, key)
        check_raw(body)
    except SettingsError as error:
        raise _refused(key, error) from None
    path, _ = require_key(key)
    if len(path) > 1 and secret:
        body = set_key(body, key, None)
    elif not body.get(path[0]):
        # A section that is left out is kept by the daemon; only null removes it.
        body[path[0]] = None
    return Change(key, _old(config, key), None, secret, body)


def _old(config: Mapping[str, Any], key: str) -> object:
    """The value in the file; None when it has none."""
    found: object = config
    for part in require_key(key)[0]:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _refused(key: str, error: SettingsError) -> CliError:
    return Refused(f"cannot set {key}", *_lines(error))


def _lines(error: SettingsError) -> list[str]:
    return [problem.render() for problem in error.problems]

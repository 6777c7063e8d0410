"""Configuration values and mistakes as rows: key, value, origin. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from skulkctl.output.layout import pairs, without_directory
from skulkctl.output.tables import EMPTY, Column, Resource
from skulkctl.output.terminal import printable

if TYPE_CHECKING:
    from skulkd.settings.problems import Problem
    from skulkd.wire.config_api import ConfigAnswer, ConfigSetting

HIDDEN = "(hidden)"


class PendingItem(TypedDict):
    """Value configured by flags, variables and file, if it differs."""

    value: object
    origin: str | None


class SettingItem(TypedDict):
    """One value as `skulkctl config show -o json` prints it."""

    key: str
    value: object
    pending: PendingItem | None
    restartNeeded: bool
    origin: str | None


class ProblemItem(TypedDict):
    """One mistake as `skulkctl config validate -o json` prints it."""

    file: str | None
    line: int | None
    key: str | None
    value: object
    message: str
    suggestion: str | None


def value_text(value: object) -> str:
    """A value as it would be typed; empty text is shown as two quotes."""
    if value is None:
        return EMPTY
    if isinstance(value, str):
        return printable(value) if value else '""'
    return json.dumps(value, ensure_ascii=False)


def pending_text(pending: object) -> str:
    return value_text(pending.get("value")) if isinstance(pending, Mapping) else EMPTY


def restart_text(needed: object) -> str:
    return "restart needed" if needed else EMPTY


SETTINGS = Resource(
    kind="SettingList",
    name_path="key",
    empty_hint="nothing is configured; defaults are in use",
    columns=(
        Column("key", "key", "Dotted key in skulk.yaml."),
        Column("value", "value", "Value in use; - if there is none.", text=value_text),
        Column(
            "configured",
            "pending",
            "Value configured by flags, variables and file, if it differs.",
            text=pending_text,
            wide=True,
        ),
        Column(
            "note",
            "restartNeeded",
            "restart needed, if the two values differ.",
            restart_text,
            wide=True,
        ),
        Column(
            "origin",
            "origin",
            "Source of the value: flag, variable, file and line, or default.",
            wide=True,
            short=without_directory,
        ),
    ),
)


PROBLEMS = Resource(
    kind="ConfigProblemList",
    name_path="key",
    columns=(
        Column("file", "file", "File that was checked."),
        Column("line", "line", "Line of the problem.", right=True),
        Column("key", "key", "Dotted key."),
        Column("problem", "message", "What is wrong."),
        Column("value", "value", "The invalid value."),
        Column("suggestion", "suggestion", "Suggested correction."),
    ),
)


def problem_item(problem: Problem) -> ProblemItem:
    return {
        "file": problem.source,
        "line": problem.line,
        "key": problem.key,
        "value": problem.value,
        "message": problem.message,
        "suggestion": problem.suggestion,
    }


def setting_items(answer: ConfigAnswer, secrets: frozenset[str]) -> list[SettingItem]:
    """One item per value; where the server tells no origins, only what its file says."""
    if answer.settings is not None:
        return [_setting(entry, secrets) for entry in answer.settings]
    path = answer.config_path or "the file"
    items = [_item(key, value, path) for key, value in _leaves(answer.config, "")]
    if answer.effective.has_hf_token:
        items.append(_item("hf_token", HIDDEN, path))
    return items


def answering_node(answer: ConfigAnswer) -> str:
    """The name of the node whose configuration it is; NODE when it does not say."""
    named = [entry.in_force for entry in answer.settings or () if entry.key == "node.name"]
    return next((name for name in named if isinstance(name, str) and name), "NODE")


def decided_elsewhere(answer: ConfigAnswer, key: str) -> str | None:
    """The flag or variable that decides a key, so that the file does not; None otherwise."""
    origins = [entry.origin for entry in answer.settings or () if entry.key == key]
    return next((name for name in origins if name.startswith("--") or name.isupper()), None)


def _setting(entry: ConfigSetting, secrets: frozenset[str]) -> SettingItem:
    configured = entry.value
    # An older daemon says only what its next start would use.
    in_force = entry.in_force if "in_force" in entry.model_fields_set else configured
    if configured is None and entry.key in secrets and entry.origin != "default":
        configured = HIDDEN
    if entry.key in secrets:
        in_force = configured
    if in_force == configured and not entry.restart_needed:
        return _item(entry.key, in_force, entry.origin)
    return {
        "key": entry.key,
        "value": in_force,
        "pending": {"value": configured, "origin": entry.origin},
        "restartNeeded": entry.restart_needed,
        "origin": entry.in_force_origin or entry.origin,
    }


def _item(key: str, value: object, origin: str | None) -> SettingItem:
    return {"key": key, "value": value, "pending": None, "restartNeeded": False, "origin": origin}


def _leaves(section: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in section.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{key}.")
        else:
            yield key, value


def pending_lines(items: Sequence[SettingItem], room: int | None) -> str:
    """`runtime.queue  32, configured 16: restart needed`, or who has changed it."""
    changes = [(item["key"], _pending_line(item)) for item in items]
    return "OTHER THAN CONFIGURED\n" + pairs(changes, room, indent="  ")


def _pending_line(item: SettingItem) -> str:
    note = "restart needed" if item["restartNeeded"] else f"changed by {item['origin']}"
    return f"{value_text(item['value'])}, configured {pending_text(item['pending'])}: {note}"

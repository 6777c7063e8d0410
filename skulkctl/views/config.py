"""Configuration values as rows: from `GET /config` to key, value, origin. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from skulkctl.layout import pairs, without_directory
from skulkctl.screen import printable
from skulkctl.tables import EMPTY, Column, Resource
from skulkctl.views.read import Document, flag, mapping, sequence, text

HIDDEN = "(hidden)"


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
        Column("key", "key", "Dotted key, as in the file."),
        Column("value", "value", "Value in force; - when there is none.", text=value_text),
        Column(
            "configured",
            "pending",
            "What flags, variables and file say now, where that is another value.",
            text=pending_text,
            wide=True,
        ),
        Column(
            "note", "restartNeeded", "restart needed where the two differ.", restart_text, wide=True
        ),
        Column(
            "origin",
            "origin",
            "Flag, variable, file and line, or default.",
            wide=True,
            short=without_directory,
        ),
    ),
)


def pending_lines(items: Sequence[Document], room: int | None) -> str:
    """`runtime.queue  32, configured 16: restart needed`, or who has changed it."""
    changes = [(str(item["key"]), _pending_line(item)) for item in items]
    return "OTHER THAN CONFIGURED\n" + pairs(changes, room, indent="  ")


def _pending_line(item: Document) -> str:
    note = "restart needed" if item["restartNeeded"] else f"changed by {item['origin']}"
    return f"{value_text(item['value'])}, configured {pending_text(item['pending'])}: {note}"


def has_origins(answer: object) -> bool:
    """Whether this server says where its values come from; a stock node does not."""
    return isinstance(mapping(answer).get("settings"), list)


def setting_items(answer: object, secrets: frozenset[str]) -> list[dict[str, object]]:
    """One item per value; without origins from the server, only what its file says."""
    if has_origins(answer):
        return [_setting(entry, secrets) for entry in sequence(answer, "settings")]
    config = mapping(answer, "config")
    path = text(answer, "configPath") or "the file"
    items = [_item(key, value, path) for key, value in _leaves(config, "")]
    if flag(answer, "effective", "has_hf_token"):
        items.append(_item("hf_token", HIDDEN, path))
    return items


def answering_node(answer: object) -> str:
    """The name of the node whose configuration it is; NODE when it does not say."""
    entries = sequence(answer, "settings")
    named = [text(entry, "inForce") for entry in entries if text(entry, "key") == "node.name"]
    return next((name for name in named if name), "NODE")


def decided_elsewhere(answer: object, key: str) -> str | None:
    """The flag or variable that decides a key, so that the file does not; None otherwise."""
    for entry in sequence(answer, "settings"):
        origin = text(entry, "origin") or ""
        if text(entry, "key") == key and (origin.startswith("--") or origin.isupper()):
            return origin
    return None


def _setting(entry: object, secrets: frozenset[str]) -> dict[str, object]:
    key, origin = text(entry, "key") or EMPTY, text(entry, "origin")
    configured = mapping(entry).get("value")
    # An older daemon says only what its next start would use.
    in_force = mapping(entry).get("inForce", configured)
    if configured is None and key in secrets and origin != "default":
        configured = HIDDEN
    if key in secrets:
        in_force = configured
    restart = flag(entry, "restartNeeded") is True
    if in_force == configured and not restart:
        return _item(key, in_force, origin)
    item = _item(key, in_force, text(entry, "inForceOrigin") or origin)
    return item | {
        "pending": {"value": configured, "origin": origin},
        "restartNeeded": restart,
    }


def _item(key: str, value: object, origin: str | None) -> dict[str, object]:
    return {"key": key, "value": value, "pending": None, "restartNeeded": False, "origin": origin}


def _leaves(section: Document, prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in section.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{key}.")
        else:
            yield key, value

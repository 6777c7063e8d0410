"""New data into an existing settings file, leaving alone what did not change.

Comments, order and spelling of unchanged top-level sections stay; a changed section is written
anew. Must not decide what the new data is.
"""

import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from skulkd.settings.check import check_raw
from skulkd.settings.document import Document, parse_document
from skulkd.settings.edit import Raw, changed_sections, holds_secret
from skulkd.settings.files import make_private_dir, write_atomic
from skulkd.settings.load import read_document
from skulkd.settings.problems import SettingsError


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def update_config(file: Path, change: Callable[[Raw], Raw]) -> frozenset[str]:
    """Read the file, which need not exist, and write back what `change` makes of its data.

    Returns the sections that changed. Raises like `save_config`, and whatever `change` raises.
    """
    before = read_document(file) if file.exists() else parse_document(b"", str(file))
    return save_config(file, before, change(before.data))


def save_config(file: Path, before: Document, raw: Mapping[str, Any]) -> frozenset[str]:
    """Write `raw` to the file that was read as `before`; return the sections that changed.

    The version before stays as `<file>.bak`. A file with a secret gets mode 0600. Raises
    SettingsError when the data is not valid or the file has changed since; OSError when the disk
    refuses. In both cases the file is as it was.
    """
    check_raw(raw)
    changed = changed_sections(before.data, raw)
    if not changed:
        return changed
    text = rewrite(before, raw)
    make_private_dir(file.parent)
    private = holds_secret(raw) or holds_secret(before.data)
    if file.exists():
        if read_document(file).text != before.text:
            raise SettingsError.single("somebody else changed the file; try again", source=file)
        mode = 0o600 if private else stat.S_IMODE(file.stat().st_mode)
        write_atomic(file.with_name(f"{file.name}.bak"), before.text.encode(), mode=mode)
    write_atomic(file, text.encode(), mode=0o600 if holds_secret(raw) else None)
    return changed


def rewrite(document: Document, raw: Mapping[str, Any]) -> str:
    """The text of the document changed to say `raw`, read back to make sure that it does.

    Raises SettingsError when the new text would be beyond the limits of a settings file.
    """
    text = _patched(document, raw)
    if text is not None and _says(text, raw):
        return text
    # Flow style, anchors shared between sections and the like cannot be patched.
    whole = "".join(_dumped(name, raw[name], "\n") for name in raw)
    if changed_sections(parse_document(whole, "the new settings").data, raw):
        raise SettingsError.single("the new settings cannot be written as YAML")
    return whole


def _patched(document: Document, raw: Mapping[str, Any]) -> str | None:
    if document.starts is None:
        return None
    text = document.text
    newline = "\r\n" if "\r\n" in text else "\n"
    changed = changed_sections(document.data, raw)
    ends = [offset for _, offset in document.starts[1:]] + [len(text)]
    parts = [text[: document.starts[0][1] if document.starts else len(text)]]
    for (name, start), end in zip(document.starts, ends, strict=False):
        chunk = text[start:end]
        if name in changed:
            body = "" if raw.get(name) is None else _dumped(name, raw[name], newline)
            chunk = body + _trailing_remarks(chunk)
        parts.append(chunk)
    known = {name for name, _ in document.starts}
    for name in raw:
        if name in changed and name not in known:
            if parts[-1] and not parts[-1].endswith("\n"):
                parts.append(newline)
            parts.append(_dumped(name, raw[name], newline))
    return "".join(parts)


def _trailing_remarks(chunk: str) -> str:
    """Comment and blank lines at the end of a section: they belong to what comes next."""
    lines = chunk.splitlines(keepends=True)
    first = len(lines)
    while first > 1 and (not lines[first - 1].strip() or lines[first - 1].startswith(("#", "..."))):
        first -= 1
    return "".join(lines[first:])


def _dumped(name: str, value: object, newline: str) -> str:
    text: str = yaml.dump(
        {name: value},
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=1_000_000,
        line_break=newline,
    )
    return text


def _says(text: str, raw: Mapping[str, Any]) -> bool:
    try:
        return not changed_sections(parse_document(text, "new text").data, raw)
    except SettingsError:
        return False

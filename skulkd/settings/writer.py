"""New data into an existing settings file, leaving alone what did not change.

The written text is read back before it replaces the file. Must not decide what the new data is.
"""

import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from skulkd.settings.check import check_raw
from skulkd.settings.document import Document, parse_document
from skulkd.settings.edit import Raw, changed_sections, holds_secret
from skulkd.settings.files import make_private_dir, write_atomic
from skulkd.settings.load import read_document
from skulkd.settings.patch import dumped, patched
from skulkd.settings.problems import SettingsError


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
    new = document
    # A changed anchor changes its aliases too; the second time these get values of their own.
    for _ in range(2):
        try:
            new = parse_document(patched(new, _sections(raw, new.data)), "new text")
        except SettingsError:
            break
        if not changed_sections(new.data, raw):
            return new.text
    # For example, a removed anchor that others use cannot be patched.
    whole = dumped(_sections(raw, {}))
    if changed_sections(parse_document(whole, "the new settings").data, raw):
        raise SettingsError.single("the new settings cannot be written as YAML")
    return whole


def _sections(raw: Mapping[str, Any], old: Mapping[str, Any]) -> Raw:
    """`raw` with null for those sections only that are null in the file already."""
    return {
        name: raw.get(name)
        for name in {**old, **raw}
        if raw.get(name) is not None or (name in old and old[name] is None)
    }

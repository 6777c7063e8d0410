"""Small best-effort reads below /sys and /proc: None when a file is absent or unreadable."""

from pathlib import Path


def read_text(path: Path) -> str | None:
    """The stripped text of a small kernel file; None if it is missing, refused or empty."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.strip(" \t\n\0") or None


def read_int(path: Path) -> int | None:
    """The whole number in a kernel file; None if there is none."""
    text = read_text(path)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        return None


def link_name(path: Path) -> str | None:
    """The last part of what a symbolic link points to; None if it is no link."""
    try:
        return path.readlink().name
    except OSError:
        return None

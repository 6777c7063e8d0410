"""A man page as plain text, for machines without `man`. Knows only what our own pages use."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

_INDENT, _DEEPER = " " * 4, " " * 8
_ESCAPES = (("\\&", ""), ("\\-", "-"), ("\\(aq", "'"), ("\\e", "\\"))


def plain_text(page: str, width: int = 80) -> str:
    """Headings at the margin, text wrapped, examples as they are."""
    return "\n".join(_lines(page.splitlines(), width)).strip("\n") + "\n"


def _lines(source: list[str], width: int) -> Iterator[str]:
    verbatim, indent, is_term = False, _INDENT, False
    for line in source:
        macro, _, rest = line.partition(" ") if line.startswith(".") else ("", "", line)
        text = _unescaped(rest)
        match macro:
            case ".SH" | ".SS":
                yield from ("", text if macro == ".SH" else f"  {text}")
                indent = _INDENT
            case ".TP":
                yield ""
                is_term, indent = True, _INDENT
            case ".PP":
                yield ""
                indent = _INDENT
            case ".nf" | ".fi":
                verbatim = macro == ".nf"
            case ".BR":
                yield _INDENT + text.replace(" (", "(").replace(" ,", "")
            case "" | ".B":
                whole = verbatim or is_term
                yield from [indent + text] if whole else _wrapped(text, indent, width)
                indent, is_term = _DEEPER if is_term else indent, False


def _wrapped(text: str, indent: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def _unescaped(text: str) -> str:
    for escape, char in _ESCAPES:
        text = text.replace(escape, char)
    return text

"""Which token a program gets, and how to write it without showing it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from skulkctl.endpoints import is_loopback

if TYPE_CHECKING:
    from skulkctl.contexts import Target

Source = Literal["file", "environment", "unneeded", "missing"]
UNNEEDED = "none"
"""Libraries insist on a key also where none is checked."""
PLACEHOLDER = "TOKEN"


class Key(NamedTuple):
    """The API key of a program. `value` is secret, but for the one that nobody checks."""

    source: Source
    value: str | None
    shell: str
    """Text that a POSIX shell turns into the value."""
    file: str | None = None

    @property
    def is_secret(self) -> bool:
        return self.source in ("file", "environment")


def find_key(target: Target, url: str, environ: Mapping[str, str]) -> Key:
    """The token of the context or of SKULK_TOKEN. The cluster secret is given to no program."""
    if environ.get("SKULK_TOKEN", "").strip():
        return Key("environment", target.token, '"$SKULK_TOKEN"')
    if target.token is not None and target.context.token_file is not None:
        from skulkd.settings.paths import expand_home

        file = str(expand_home(target.context.token_file, environ))
        return Key("file", target.token, f'"$(cat {shlex.quote(file)})"', file)
    if is_loopback(url):
        return Key("unneeded", UNNEEDED, UNNEEDED)
    return Key("missing", None, PLACEHOLDER)

"""Files with the token of a context, or the cluster secret: reading and checking them."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from skulkctl.errors import NotFound, Refused


def read_token(path: Path) -> str:
    """The token in a file. Raises NotFound, or Refused when the file holds no usable token."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise NotFound(f"no token file {path}") from None
    except UnicodeDecodeError:
        raise Refused(f"{path} is not a text file", _EXPECTED) from None
    except OSError as error:
        raise Refused(f"cannot read the token file {path}", error.strerror or str(error)) from None
    if not token:
        raise Refused(f"the token file {path} is empty", _EXPECTED)
    return check_token(token, f"the token in {path}")


_EXPECTED = "it must contain a token or the cluster secret on one line"


def check_token(token: str, what: str = "the token") -> str:
    """The token when HTTP can carry it; raises Refused."""
    if not (token.isascii() and token.isprintable()):
        raise Refused(f"{what} has characters that HTTP cannot carry", "expected one ASCII line")
    return token


def stored_path(typed: str) -> str:
    """The path as the context file keeps it: valid from every directory; `~` stays."""
    return typed if typed.startswith("~") else str(Path(typed).absolute())


def check_token_file(typed: str, environ: Mapping[str, str]) -> str | None:
    """A warning when other users can read the file. Raises as `read_token` does."""
    from skulkd.settings.paths import expand_home

    path = expand_home(typed, environ)
    read_token(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return f"other users can read {path} (mode {mode:04o}); run: chmod 600 {path}"
    return None

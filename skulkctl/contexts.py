"""The context file, and which daemons one invocation is about.

Reads and writes `skulkctl.toml`; must not open a connection.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skulkctl.endpoints import DEFAULT_ENDPOINT, DEFAULT_PORT, is_own_network, parse_endpoint
from skulkctl.errors import CliError, NotFound, UsageMistake

if TYPE_CHECKING:
    from skulkd.settings.local_api import LocalApi
    from skulkd.settings.paths import Paths

DEFAULT_NAME = "default"
ONE_OFF_NAME = "-"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_KEYS = ("endpoints", "token_file", "protected", "ca")


class Context(NamedTuple):
    """A named cluster: its addresses in the order they are tried."""

    name: str
    endpoints: tuple[str, ...]
    token_file: str | None = None
    protected: bool = False
    ca: str | None = None
    """PEM file of the only authority whose certificates are accepted."""


class ContextFile(NamedTuple):
    """Everything in `skulkctl.toml`."""

    current: str | None = None
    contexts: Mapping[str, Context] = {}

    def get(self, name: str) -> Context:
        """The context with that name; raises NotFound naming the nearest."""
        if name in self.contexts:
            return self.contexts[name]
        near = get_close_matches(name, self.contexts, n=1)
        known = ", ".join(self.contexts) or "none"
        hints = [f"did you mean {near[0]}?"] if near else []
        raise NotFound(
            f"no context named {name}",
            f"contexts: {known}",
            hints=[*hints, f"skulkctl context add {name} HOST:{DEFAULT_PORT}"],
        )

    def added(self, context: Context, use: bool) -> ContextFile:
        contexts = {**self.contexts, context.name: context}
        return ContextFile(context.name if use else self.current, contexts)

    def removed(self, name: str) -> ContextFile:
        self.get(name)
        contexts = {key: value for key, value in self.contexts.items() if key != name}
        return ContextFile(None if self.current == name else self.current, contexts)

    def used(self, name: str) -> ContextFile:
        self.get(name)
        return self._replace(current=name)


class Target(NamedTuple):
    """The daemons this invocation connects to."""

    context: Context
    token: str | None = None
    local_secret: str | None = None
    """The cluster secret of this machine, for its peers."""
    ca: Path | None = None
    """Accept certificates of this authority only."""
    local_authority: Path | None = None
    """That of this machine's daemon: accepted besides the system's when `ca` is not given."""

    def token_for(self, peer: str) -> str | None:
        """What to show to the machine at this IP address.

        The local secret opens the whole cluster, so it goes unasked only to other machines of
        our own network: not to a public address, nor to whoever listens on this machine.
        """
        if self.token is not None:
            return self.token
        return self.local_secret if is_own_network(peer) else None


def check_name(name: str) -> str:
    """A usable context name; raises UsageMistake."""
    if not _NAME.fullmatch(name):
        raise UsageMistake(
            f"{name!r} cannot name a context",
            "use letters, digits, dots, dashes and underscores; start with a letter or digit",
        )
    return name


def read_contexts(path: Path) -> ContextFile:
    """The context file; an absent one is empty. Raises CliError naming file and line."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return ContextFile()
    except OSError as error:
        raise CliError(f"cannot read {path}", str(error.strerror or error)) from error
    return parse_contexts(raw, path)


def parse_contexts(raw: bytes, path: Path) -> ContextFile:
    """The contexts in a file's text; `path` is only for messages."""
    import tomllib

    try:
        text = raw.decode()
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CliError(f"{path} is not valid TOML", str(error)) from error
    try:
        return _from_document(document)
    except _Bad as error:
        where = f"{path}:{_line_of(error.key, text)}"
        hints = ["fix that line, or move the file away"]
        raise CliError(f"{where}: {error}", hints=hints) from None


class _Bad(Exception):
    """Something about one key is wrong."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def _from_document(document: Mapping[str, object]) -> ContextFile:
    for key in document:
        if key not in ("current", "contexts"):
            raise _Bad(key, f"unknown key {key}; known: current, contexts")
    tables = document.get("contexts", {})
    if not isinstance(tables, dict):
        raise _Bad("contexts", "contexts must be a table")
    contexts = {name: _context(name, table) for name, table in tables.items()}
    current = document.get("current")
    if current is not None and (not isinstance(current, str) or current not in contexts):
        raise _Bad("current", f"current is {current!r}, which is not a context of this file")
    return ContextFile(current, contexts)


def _context(name: str, table: object) -> Context:
    if not isinstance(table, dict):
        raise _Bad(name, f"contexts.{name} must be a table")
    for key in table:
        if key not in _KEYS:
            near = get_close_matches(key, _KEYS, n=1)
            extra = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(_KEYS)}"
            raise _Bad(key, f"contexts.{name}: unknown key {key}{extra}")
    endpoints, token_file, ca = (table.get(key) for key in ("endpoints", "token_file", "ca"))
    if not isinstance(endpoints, list) or not endpoints:
        raise _Bad(name, f"contexts.{name}.endpoints must be a list of addresses")
    if token_file is not None and not isinstance(token_file, str):
        raise _Bad("token_file", f"contexts.{name}.token_file must be a path")
    if ca is not None and not isinstance(ca, str):
        raise _Bad("ca", f"contexts.{name}.ca must be a path")
    if not isinstance(table.get("protected", False), bool):
        raise _Bad("protected", f"contexts.{name}.protected must be true or false")
    try:
        urls = tuple(parse_endpoint(str(endpoint)) for endpoint in endpoints)
    except ValueError as error:
        raise _Bad("endpoints", f"contexts.{name}.endpoints: {error}") from None
    return Context(name, urls, token_file, table.get("protected", False), ca)


def _line_of(key: str, text: str) -> int:
    """The first line that has the key, or names it in a table's header."""
    pattern = re.compile(rf"^\s*(\[.*\b)?[\"']?{re.escape(key)}\b")
    lines = enumerate(text.splitlines(), start=1)
    return next((number for number, line in lines if pattern.search(line)), 1)


def to_toml(contexts: ContextFile) -> str:
    """The text of a context file."""
    lines = [f"current = {_quoted(contexts.current)}", ""] if contexts.current else []
    for context in contexts.contexts.values():
        lines.append(f"[contexts.{_quoted(context.name)}]")
        lines.append(f"endpoints = [{', '.join(_quoted(url) for url in context.endpoints)}]")
        if context.token_file:
            lines.append(f"token_file = {_quoted(context.token_file)}")
        if context.protected:
            lines.append("protected = true")
        if context.ca:
            lines.append(f"ca = {_quoted(context.ca)}")
        lines.append("")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """A JSON string is a TOML string, but for one character that JSON leaves alone."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_contexts(path: Path, contexts: ContextFile) -> None:
    """Replace the context file. Raises CliError when that is not possible."""
    from skulkd.settings.files import make_private_dir, write_atomic

    try:
        make_private_dir(path.parent)
        write_atomic(path, to_toml(contexts).encode())
    except OSError as error:
        raise CliError(f"cannot write {path}", str(error.strerror or error)) from error


def resolve(
    paths: Paths, environ: Mapping[str, str], endpoint: str | None, context: str | None
) -> Target:
    """The daemons to connect to: flags, the environment, `current`, this machine's, the default."""
    from skulkd.settings.local_api import read_local_api

    source = "--endpoint"
    if endpoint is None and context is None:
        source = "SKULK_ENDPOINT"
        endpoint = environ.get("SKULK_ENDPOINT") or None
        context = None if endpoint else environ.get("SKULK_CONTEXT") or None
    local_api = read_local_api(paths.local_api_file)
    if endpoint is None:
        file = read_contexts(paths.contexts_file)
        name = context or file.current
        chosen = file.get(name) if name else _local_daemon(local_api)
    else:
        url = _checked(endpoint, source)
        # Only a context that was named lends its token: the current one may be another cluster.
        named = read_contexts(paths.contexts_file).get(context) if context else None
        chosen = (named or Context(ONE_OFF_NAME, ()))._replace(endpoints=(url,))
    token = _token(chosen, environ)
    return Target(
        chosen,
        token,
        None if token else _local_secret(paths),
        _ca(chosen, environ),
        Path(local_api.authority) if local_api and local_api.authority else None,
    )


def _local_daemon(api: LocalApi | None) -> Context:
    """Where the daemon of this machine is; only its own authority counts there.

    An HTTPS address is kept even if that daemon is gone: whoever listens on the default port
    instead must not get a token in clear text.
    """
    if api is None or (api.is_stale and not api.is_https):
        return Context(DEFAULT_NAME, (DEFAULT_ENDPOINT,))
    return Context(DEFAULT_NAME, (api.endpoint,), ca=api.authority)


def _checked(endpoint: str, source: str) -> str:
    try:
        return parse_endpoint(endpoint)
    except ValueError as error:
        raise UsageMistake(f"{source}: {error}") from None


def _token(context: Context, environ: Mapping[str, str]) -> str | None:
    from skulkctl.tokens.files import check_token, read_token

    token = environ.get("SKULK_TOKEN", "").strip()
    if token:
        return check_token(token, "SKULK_TOKEN")
    if not context.token_file:
        return None
    from skulkd.settings.paths import expand_home

    try:
        return read_token(expand_home(context.token_file, environ))
    except CliError as error:
        raise CliError(
            f"context {context.name}: {error.what}",
            *error.why,
            hints=[f"skulkctl context set {context.name} --token-file FILE"],
        ) from error


def _ca(context: Context, environ: Mapping[str, str]) -> Path | None:
    from skulkd.settings.paths import expand_home

    named = environ.get("SKULK_CA", "").strip() or context.ca
    return expand_home(named, environ) if named else None


def _local_secret(paths: Paths) -> str | None:
    try:
        secret = paths.secret_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None  # Another user's, or there is none: then there is nothing to offer.
    return secret if secret.isascii() and secret.isprintable() else None

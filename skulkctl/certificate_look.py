"""Looking at certificates in files and at addresses, for `skulkctl tls status`."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from skulkctl.errors import NotFound, UsageMistake
from skulkctl.pki_files import authority_of
from skulkctl.views.certificates import Look, certificate_item, unusable_item
from skulkd.settings.certificates import (
    Certificate,
    CertificateError,
    is_pair,
    is_signed_by,
    read_certificates,
    read_key,
)

if TYPE_CHECKING:
    from skulkctl.contexts import Target
    from skulkctl.invocation import Invocation

_HOST_PORT = re.compile(r"[^/\s]+:\d{1,5}")

Item = dict[str, object]


def look_at(call: Invocation, typed: str, within_s: float) -> Iterator[Item]:
    """Rows for a file, a directory or an endpoint. Raises NotFound or UsageMistake."""
    path = Path(typed)
    if "://" in typed:
        yield look_at_endpoint(call, typed, within_s)
    elif path.is_dir():
        yield from look_at_directory(path, within_s)
    elif path.exists():
        yield look_at_file(path, within_s)
    elif _HOST_PORT.fullmatch(typed):
        yield look_at_endpoint(call, f"https://{typed}", within_s)
    else:
        raise NotFound(f"no file, directory or address {typed}")


def look_at_directory(directory: Path, within_s: float) -> Iterator[Item]:
    """Every certificate in it, the authority first."""
    authority = authority_of(directory).certificate
    files = sorted(directory.glob("*.pem"), key=lambda file: (file != authority, file.name))
    if not files:
        raise NotFound(f"no certificates (*.pem) in {directory}")
    for file in files:
        yield look_at_file(file, within_s)


def look_at_file(file: Path, within_s: float) -> Item:
    """A certificate, with the key beside it and the authority of its directory."""
    try:
        chain = read_certificates(file)
    except CertificateError as error:
        return unusable_item(str(file), error.why)
    key, key_problem = _key(file, chain[0])
    signed, chain_problem = _chain(file, chain)
    look = Look(key, signed, "; ".join(filter(None, (key_problem, chain_problem))) or None)
    return certificate_item(str(file), chain[0], look, datetime.now(UTC), within_s)


def look_at_endpoint(call: Invocation, typed: str, within_s: float) -> Item:
    """What a daemon shows, and whether this machine would accept it."""
    from skulkctl.tls_trust import LOOK_S, explain, handshake, peer_certificate

    target = _target(call, typed)
    endpoint = target.context.endpoints[0]
    limit_s = call.timeout_s(LOOK_S)
    if urlsplit(endpoint).scheme != "https":
        raise UsageMistake(f"{endpoint} is plain HTTP and shows no certificate; write https://")
    try:
        certificate = peer_certificate(endpoint, limit_s)
    except ssl.SSLError as error:
        return unusable_item(endpoint, explain(error, endpoint, target)[0])
    except OSError as error:
        return unusable_item(endpoint, (error.strerror or str(error)).lower())
    except ValueError:
        return unusable_item(endpoint, "it shows a certificate that cannot be read")
    problem = handshake(endpoint, target, limit_s)
    look = Look(chain="not trusted" if problem else "trusted", problem=problem)
    return certificate_item(endpoint, certificate, look, datetime.now(UTC), within_s)


def _target(call: Invocation, typed: str) -> Target:
    """With the authority of the context that was named, else of the one in use if it is there."""
    from skulkctl.contexts import read_contexts, resolve

    named = call.options.get("context")
    target = resolve(call.paths, call.environ, typed, named)
    file = read_contexts(call.paths.contexts_file)
    current = file.contexts.get(file.current or "")
    if named or current is None or target.context.endpoints[0] not in current.endpoints:
        return target
    return resolve(call.paths, call.environ, typed, current.name)


def local_endpoint(call: Invocation) -> str | None:
    """That of this machine's daemon, when it serves HTTPS."""
    from skulkd.settings.local_api import read_local_api

    found = read_local_api(call.paths.local_api_file)
    return None if found is None else found.endpoint


def _key(file: Path, certificate: Certificate) -> tuple[str | None, str | None]:
    """A word about the key beside a certificate, and what is wrong with it."""
    key_file = file.with_suffix(".key")
    if not key_file.exists():
        return None, None
    try:
        fits = is_pair(certificate, read_key(key_file))
    except CertificateError as error:
        return "unreadable", f"{key_file} {error.why}"
    if not fits:
        return "another's", f"{key_file} is not its private key"
    if key_file.stat().st_mode & 0o077:
        return "not private", f"other users can read {key_file}; run: chmod 600 {key_file}"
    return "matches", None


def _chain(file: Path, chain: list[Certificate]) -> tuple[str | None, str | None]:
    """A word about the authority of the directory, and what is wrong."""
    authority = authority_of(file.parent).certificate
    if chain[0].is_authority or not authority.exists():
        return None, None
    try:
        signed = is_signed_by(chain, read_certificates(authority, "authority"))
    except CertificateError as error:
        return "unknown", f"{authority} {error.why}"
    return ("verified", None) if signed else ("foreign", f"not signed by {authority}")


def within(typed: str) -> float:
    """The window of `--within` in seconds. Raises UsageMistake."""
    from skulkctl.units import parse_duration

    try:
        return parse_duration(typed)
    except ValueError as error:
        raise UsageMistake(f"--within: {error}") from None

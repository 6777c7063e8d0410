"""What `skulkctl tls status` shows: certificates in files and at addresses, as rows."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import urlsplit

from skulkctl.certificates.files import authority_of
from skulkctl.errors import NotFound, UsageMistake
from skulkctl.output.tables import EMPTY, Column, Resource
from skulkctl.output.units import time_text
from skulkd.settings.certificates import (
    Certificate,
    CertificateError,
    is_pair,
    is_signed_by,
    read_certificates,
    read_key,
)

if TYPE_CHECKING:
    from skulkctl.cli import Invocation
    from skulkctl.contexts import Target

_HOST_PORT = re.compile(r"[^/\s]+:\d{1,5}")

OK, EXPIRING, EXPIRED, INVALID = "ok", "expiring", "expired", "invalid"
SYMBOLS = {OK: "●", EXPIRING: "▲", EXPIRED: "✖", INVALID: "✖"}


def state_text(value: object) -> str:
    """`● ok`: the symbol and the word."""
    word = str(value)
    return f"{SYMBOLS[word]} {word}" if word in SYMBOLS else EMPTY


def days_text(value: object) -> str:
    """`12 days`, `1 day`, `-3 days`."""
    if not isinstance(value, int):
        return EMPTY
    return f"{value} day{'' if abs(value) == 1 else 's'}"


CERTIFICATES = Resource(
    kind="CertificateList",
    name_path="source",
    empty_hint="no certificates here:  skulkctl tls init",
    columns=(
        Column("state", "state", "ok, expiring, expired or invalid.", state_text, status=True),
        Column("source", "source", "File, or address that presents it."),
        Column("subject", "subject", "Subject of the certificate.", spare=3),
        Column("left", "daysLeft", "Time until it expires.", days_text, right=True),
        Column("expires", "expiresAt", "When it expires.", spare=4),
        Column("issuer", "issuer", "Issuer of the certificate.", spare=5),
        Column("key", "key", "Whether the private key next to it matches.", spare=2),
        Column("chain", "chain", "Whether the CA has signed it.", spare=1),
        Column("names", "names", "Host names and addresses in the certificate."),
        Column("problem", "problem", "Problem with the certificate."),
        Column("fingerprint", "fingerprint", "SHA-256 of the certificate.", wide=True),
    ),
)


class CertificateStatus(TypedDict):
    """One certificate as `skulkctl tls status -o json` prints it."""

    source: str
    state: str
    subject: str | None
    names: list[str]
    issuer: str | None
    isAuthority: bool | None
    validFrom: str | None
    expiresAt: str | None
    daysLeft: int | None
    key: str | None
    chain: str | None
    problem: str | None
    fingerprint: str | None


@dataclass(frozen=True)
class Checked:
    """What was found out about a certificate besides its own facts, in words."""

    key: str | None = None
    chain: str | None = None
    problem: str | None = None


def certificate_item(
    source: str, certificate: Certificate, checked: Checked, now: datetime, within_s: float
) -> CertificateStatus:
    """One row. It is `expiring` when less than `within_s` is left."""
    problem = checked.problem or certificate.validity_problem(now)
    left_s = (certificate.not_after - now).total_seconds()
    state = OK
    if left_s <= 0:
        state = EXPIRED
    elif problem is not None:
        state = INVALID
    elif left_s < within_s:
        state = EXPIRING
    return {
        "source": source,
        "state": state,
        "subject": certificate.subject,
        "names": list(certificate.names),
        "issuer": certificate.issuer,
        "isAuthority": certificate.is_authority,
        "validFrom": time_text(certificate.not_before),
        "expiresAt": time_text(certificate.not_after),
        "daysLeft": certificate.days_left(now),
        "key": checked.key,
        "chain": checked.chain,
        "problem": problem,
        "fingerprint": certificate.fingerprint,
    }


def unusable_item(source: str, problem: str) -> CertificateStatus:
    """A row for what could not be read or reached."""
    return {
        "source": source,
        "state": INVALID,
        "subject": None,
        "names": [],
        "issuer": None,
        "isAuthority": None,
        "validFrom": None,
        "expiresAt": None,
        "daysLeft": None,
        "key": None,
        "chain": None,
        "problem": problem,
        "fingerprint": None,
    }


def needs_attention(items: Sequence[CertificateStatus]) -> list[CertificateStatus]:
    """Everything that is not simply in order."""
    return [item for item in items if item["state"] != OK]


def look_at(call: Invocation, typed: str, within_s: float) -> Iterator[CertificateStatus]:
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


def look_at_directory(directory: Path, within_s: float) -> Iterator[CertificateStatus]:
    """Every certificate in it, the authority first."""
    authority = authority_of(directory).certificate
    files = sorted(directory.glob("*.pem"), key=lambda file: (file != authority, file.name))
    if not files:
        raise NotFound(f"no certificates (*.pem) in {directory}")
    for file in files:
        yield look_at_file(file, within_s)


def look_at_file(file: Path, within_s: float) -> CertificateStatus:
    """A certificate, with the key beside it and the authority of its directory."""
    try:
        chain = read_certificates(file)
    except CertificateError as error:
        return unusable_item(str(file), error.why)
    key, key_problem = _key(file, chain[0])
    signed, chain_problem = _chain(file, chain)
    problems = "; ".join(filter(None, (key_problem, chain_problem)))
    checked = Checked(key, signed, problems or None)
    return certificate_item(str(file), chain[0], checked, datetime.now(UTC), within_s)


def look_at_endpoint(call: Invocation, typed: str, within_s: float) -> CertificateStatus:
    """What a daemon shows, and whether this machine would accept it."""
    from skulkctl.certificates.trust import LOOK_S, explain, handshake, peer_certificate

    target = _target(call, typed)
    endpoint = target.context.endpoints[0]
    limit_s = call.timeout_s(LOOK_S)
    if urlsplit(endpoint).scheme != "https":
        raise UsageMistake(f"{endpoint} is plain HTTP and presents no certificate; use https://")
    try:
        certificate = peer_certificate(endpoint, limit_s)
    except ssl.SSLError as error:
        return unusable_item(endpoint, explain(error, endpoint, target)[0])
    except OSError as error:
        return unusable_item(endpoint, (error.strerror or str(error)).lower())
    except ValueError:
        return unusable_item(endpoint, "it presents a certificate that cannot be read")
    problem = handshake(endpoint, target, limit_s)
    checked = Checked(chain="not trusted" if problem else "trusted", problem=problem)
    return certificate_item(endpoint, certificate, checked, datetime.now(UTC), within_s)


def _target(call: Invocation, typed: str) -> Target:
    """With the authority of the context that was named, else of the one in use if it is there."""
    from skulkctl.cli import Reach
    from skulkctl.contexts import read_contexts, resolve

    named = call.options(Reach).context
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
    return None if found is None or not found.is_https else found.endpoint


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

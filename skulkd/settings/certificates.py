"""Certificates: what is in one, and whether a certificate, its key and its authority go together.

The only reader of X.509 in either program. `cryptography` is imported when it is needed, because
most starts of `skulkctl` need none of it. Must not know which settings name the files.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

FileKey = Literal["certificate", "key", "authority"]
Purpose = Literal["server", "client"]

_LONGEST_CHAIN = 8
_MAX_BYTES = 1 << 20


class CertificateError(ValueError):
    """A file that cannot be used: which one it is, where it is, and why."""

    def __init__(self, key: FileKey, file: Path, why: str) -> None:
        super().__init__(f"{key}: {file}: {why}")
        self.key = key
        self.file = file
        self.why = why


@dataclass(frozen=True, slots=True)
class Certificate:
    """The facts of one certificate that operators ask for."""

    subject: str
    names: tuple[str, ...]
    """DNS names and IP addresses it is valid for."""
    issuer: str
    not_before: datetime
    not_after: datetime
    is_authority: bool
    purposes: frozenset[str]
    """Empty: for everything."""
    fingerprint: str
    """SHA-256 of the whole certificate, in hex."""
    x509: x509.Certificate = field(repr=False, compare=False)

    def validity_problem(self, now: datetime) -> str | None:
        """Why it is not valid now; None when it is."""
        if now >= self.not_after:
            return f"expired on {day(self.not_after)}"
        if now < self.not_before:
            return f"not valid before {day(self.not_before)}; check the clock of this machine"
        return None

    def covers(self, host: str) -> bool:
        """Whether a client that asked for this host name or address accepts it."""
        return any(_matches(name, host) for name in self.names)

    def days_left(self, now: datetime) -> int:
        """Whole days until it expires; negative once it has."""
        return (self.not_after - now).days


def day(moment: datetime) -> str:
    """A date that means the same everywhere."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def parse_certificate(der: bytes) -> Certificate:
    """The facts in the bytes of one certificate. Raises ValueError."""
    from cryptography import x509

    return _facts(x509.load_der_x509_certificate(der))


def read_certificates(file: Path, key: FileKey = "certificate") -> list[Certificate]:
    """All certificates of a PEM file, the node's own first. Raises CertificateError."""
    from cryptography import x509

    raw = _read(file, key)
    try:
        return [_facts(one) for one in x509.load_pem_x509_certificates(raw)]
    except ValueError as error:
        raise CertificateError(key, file, "is no PEM certificate") from error


def read_key(file: Path) -> PrivateKeyTypes:
    """The private key of a PEM file. Raises CertificateError."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    raw = _read(file, "key")
    try:
        return load_pem_private_key(raw, None)
    except TypeError as error:
        why = "is protected by a passphrase, which a daemon cannot type"
        raise CertificateError("key", file, why) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CertificateError("key", file, "is no PEM private key") from error


def is_pair(certificate: Certificate, key: PrivateKeyTypes) -> bool:
    """Whether the key is that of the certificate."""
    return bool(certificate.x509.public_key() == key.public_key())


def is_signed_by(chain: Sequence[Certificate], authorities: Sequence[Certificate]) -> bool:
    """Whether signatures lead from the first of the chain to one of the authorities."""
    here = chain[0]
    if any(here.fingerprint == one.fingerprint for one in authorities):
        return True
    for _ in range(_LONGEST_CHAIN):
        if any(_issued(one, here) for one in authorities):
            return True
        above = next((one for one in chain[1:] if _issued(one, here)), None)
        if above is None or above.fingerprint == here.fingerprint:
            return False
        here = above
    return False


def check_files(
    certificate: Path,
    key: Path,
    authority: Path | None,
    purposes: Iterable[Purpose],
    now: datetime | None = None,
) -> Certificate:
    """The node's certificate, once everything about the files is right. Raises CertificateError."""
    moment = now or datetime.now(UTC)
    chain = read_certificates(certificate)
    own = chain[0]
    if (problem := own.validity_problem(moment)) is not None:
        raise CertificateError("certificate", certificate, problem)
    if not is_pair(own, read_key(key)):
        raise CertificateError("key", key, f"is not the private key of {certificate}")
    for purpose in purposes:
        if own.purposes and purpose not in own.purposes:
            why = f"may not be used as a {purpose}'s certificate (extended key usage)"
            raise CertificateError("certificate", certificate, why)
    if authority is not None:
        _check_authority(chain, certificate, authority, moment)
    return own


def _check_authority(
    chain: Sequence[Certificate], certificate: Path, authority: Path, now: datetime
) -> None:
    authorities = read_certificates(authority, "authority")
    valid = [one for one in authorities if one.validity_problem(now) is None]
    if not valid:
        raise CertificateError("authority", authority, authorities[0].validity_problem(now) or "")
    if not is_signed_by(chain, valid):
        raise CertificateError("authority", authority, f"has not signed {certificate}")


def _read(file: Path, key: FileKey) -> bytes:
    try:
        with file.open("rb") as stream:
            raw = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise CertificateError(key, file, error.strerror or str(error)) from error
    if len(raw) > _MAX_BYTES:
        raise CertificateError(key, file, "is too large for a PEM file")
    return raw


def _issued(authority: Certificate, certificate: Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.x509.verify_directly_issued_by(authority.x509)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _facts(one: x509.Certificate) -> Certificate:
    from cryptography.hazmat.primitives import hashes

    return Certificate(
        subject=_common_name(one.subject),
        names=_names(one),
        issuer=_common_name(one.issuer),
        not_before=one.not_valid_before_utc,
        not_after=one.not_valid_after_utc,
        is_authority=_is_authority(one),
        purposes=_purposes(one),
        fingerprint=one.fingerprint(hashes.SHA256()).hex(),
        x509=one,
    )


def _common_name(name: x509.Name) -> str:
    from cryptography.x509.oid import NameOID

    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else name.rfc4514_string()


def _names(one: x509.Certificate) -> tuple[str, ...]:
    from cryptography import x509

    try:
        found = one.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    dns = found.get_values_for_type(x509.DNSName)
    return (*dns, *(str(ip) for ip in found.get_values_for_type(x509.IPAddress)))


def _is_authority(one: x509.Certificate) -> bool:
    from cryptography import x509

    try:
        return one.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _purposes(one: x509.Certificate) -> frozenset[str]:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        found = set(one.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return frozenset()
    if ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in found:
        return frozenset()
    known = {
        ExtendedKeyUsageOID.SERVER_AUTH: "server",
        ExtendedKeyUsageOID.CLIENT_AUTH: "client",
    }
    return frozenset(known.get(oid, oid.dotted_string) for oid in found)


def _matches(name: str, host: str) -> bool:
    """As clients compare: addresses by value, `*` for one first part of a name."""
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        name, host = name.lower().rstrip("."), host.lower().rstrip(".")
    if name.startswith("*."):
        return bool(host.partition(".")[0]) and host.partition(".")[2] == name[2:]
    return name == host

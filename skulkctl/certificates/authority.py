"""Makes the certificates of a cluster: one authority, and one certificate for each node.

Works on values; `files.py` reads and writes them. Imports `cryptography`, so only commands that
need it import this module.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
# A certificate must hold on machines whose clocks are a little behind.
CLOCK_SLACK = timedelta(hours=1)
LONGEST_NAME = 64
_LABEL = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
_HOST = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its private key, both as PEM."""

    certificate: bytes
    key: bytes


def make_authority(name: str, key_pem: bytes | None = None, now: datetime | None = None) -> Issued:
    """An authority that can sign nodes' certificates and nothing else.

    With the key of an older one it is that one's successor. Raises ValueError for an unusable key.
    """
    key = ec.generate_private_key(ec.SECP256R1()) if key_pem is None else _ec_key(key_pem)
    subject = _subject(name)
    public = key.public_key()
    begin = now or datetime.now(UTC)
    builder = (
        _builder(subject, subject, public, begin, begin + timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    return Issued(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def issue(
    authority: Issued, name: str, names: Iterable[str], days: int, now: datetime | None = None
) -> Issued:
    """A certificate for a node, fit for the API and for links between nodes.

    It never outlives its authority. Raises ValueError when the authority has expired or its key is
    not usable.
    """
    signer = x509.load_pem_x509_certificate(authority.certificate)
    signing_key = _ec_key(authority.key)
    begin = now or datetime.now(UTC)
    if begin >= signer.not_valid_after_utc:
        raise ValueError("the CA has expired")
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key()
    end = min(begin + timedelta(days=days), signer.not_valid_after_utc)
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        _builder(_subject(name), signer.subject, public, begin, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_general, names))), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()),
            critical=False,
        )
    )
    return Issued(_pem(builder.sign(signing_key, hashes.SHA256())), _key_pem(key))


def usual_names(node: str) -> list[str]:
    """What a node's certificate is for unless the operator says more."""
    first = node.partition(".")[0]
    return list(dict.fromkeys([node, f"{first}.local", "localhost", "127.0.0.1", "::1"]))


def check_host(text: str) -> str:
    """A DNS name that a certificate can hold. Raises ValueError with a sentence for the user."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        if len(text) > 253 or not _HOST.fullmatch(text):
            raise ValueError(f"{text!r} is not a host name; use letters, digits, - and .") from None
        return text.lower()
    raise ValueError(f"{text} is an address; give it with --ip")


def check_address(text: str) -> str:
    """An IP address in its usual spelling. Raises ValueError with a sentence for the user."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address") from None


def _ec_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(pem, None)
    except (TypeError, ValueError) as error:
        raise ValueError("the CA's key is not a PEM private key without a passphrase") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the CA's key is not an EC key")  # noqa: TRY004 - about a file
    return key


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    begin: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - CLOCK_SLACK)
        .not_valid_after(end)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

"""Authentication and TLS of the store's port.

Nodes send a token derived from the cluster secret and never the secret itself, so a fake store
learns nothing that it could use elsewhere. Operators with curl may send the secret, unless that
is switched off. With TLS both sides present a certificate of one authority.
"""

import hashlib
import hmac
import ssl
from dataclasses import dataclass

from skulkd.settings.tls import TlsFiles

_PURPOSE = b"skulk model store, version 1"
_BEARER = "bearer "


def store_token(secret: str) -> str:
    """The bearer token of a node."""
    return hmac.new(secret.encode(), _PURPOSE, hashlib.sha256).hexdigest()


def may_use_store(
    authorization: str | None, secret: str, *, secret_for_operators: bool = True
) -> bool:
    """Whether an Authorization header is valid. In constant time."""
    if authorization is None or authorization[: len(_BEARER)].lower() != _BEARER or not secret:
        return False
    given = authorization[len(_BEARER) :].strip().encode("utf-8", "surrogateescape")
    is_token = hmac.compare_digest(given, store_token(secret).encode())
    is_secret = hmac.compare_digest(given, secret.encode()) and secret_for_operators
    return is_secret or is_token


@dataclass(slots=True)
class StoreTls:
    """The contexts in use. Files must have been checked before."""

    files: TlsFiles
    server: ssl.SSLContext
    client: ssl.SSLContext

    def reload(self) -> None:
        """Use the current files for new connections. Raises OSError."""
        client = _context(self.files, ssl.PROTOCOL_TLS_CLIENT)
        self.server.load_cert_chain(self.files.certificate, self.files.key)
        self.server.load_verify_locations(self.files.authority)
        # Threads may be connecting with the old one.
        self.client = client


def store_tls(files: TlsFiles) -> StoreTls:
    """Raises OSError for files that cannot be used."""
    server = _context(files, ssl.PROTOCOL_TLS_SERVER)
    return StoreTls(files, server, _context(files, ssl.PROTOCOL_TLS_CLIENT))


def _context(files: TlsFiles, protocol: int) -> ssl.SSLContext:
    """Host names are not checked: nodes are reached by addresses that change."""
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.certificate, files.key)
    context.load_verify_locations(files.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    return context

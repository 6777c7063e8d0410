"""TLS for the store server and its clients; both sides show a certificate of one authority."""

import ssl
from dataclasses import dataclass

from skulkd.settings.tls import TlsFiles


@dataclass(slots=True)
class StoreTls:
    """The contexts in use. Files must have been checked before."""

    files: TlsFiles
    server: ssl.SSLContext
    client: ssl.SSLContext

    def reload(self) -> None:
        """Use what the files hold now for new connections. Raises OSError."""
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
    """Names are not compared: nodes are reached by addresses that change."""
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.certificate, files.key)
    context.load_verify_locations(files.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    return context

"""Byte streams between ranks: plain TCP, or TLS with the certificates of the cluster.

Does not know which rank the other side is; `rank_auth.py` does.
"""

import hashlib
import socket
import ssl
import threading
import time
from pathlib import Path

from skulkd.runner.protocol import TlsPaths

_READ_BYTES = 256 * 1024


class RankStream:
    """TCP. One thread may receive while another sends. All methods raise OSError."""

    fingerprints = (b"", b"")
    """Hashes of this side's and the other side's certificate; empty without TLS."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def receive(self) -> bytes:
        """At least one byte; nothing at the end."""
        return self._connection.recv(_READ_BYTES)

    def set_timeout(self, seconds: float | None) -> None:
        self._connection.settimeout(None if seconds is None else max(seconds, 0.01))

    def close(self) -> None:
        self._connection.close()


class TlsStream(RankStream):
    """TLS over TCP.

    An SSL object must not be used by two threads at once, and reading blocks. So it works on
    memory only, under a lock, and the socket is read and written outside of that lock.
    """

    def __init__(
        self, connection: socket.socket, context: ssl.SSLContext, own: bytes, *, server_side: bool
    ) -> None:
        super().__init__(connection)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self._state = threading.Lock()
        self._sending = threading.Lock()
        self.fingerprints = (own, b"")

    def handshake(self, deadline: float) -> None:
        """Agree on keys and check the other side's certificate, until a monotonic time."""
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                super().send(self._outgoing.read())
                self.set_timeout(deadline - time.monotonic())
                self._feed(super().receive())
        super().send(self._outgoing.read())
        certificate = self._tls.getpeercert(binary_form=True) or b""
        self.fingerprints = (self.fingerprints[0], hashlib.sha256(certificate).digest())

    def send(self, data: bytes) -> None:
        with self._sending:
            with self._state:
                rest = memoryview(data)
                while rest:
                    rest = rest[self._tls.write(rest) :]
                encrypted = self._outgoing.read()
            super().send(encrypted)

    def receive(self) -> bytes:
        while (data := self._decrypted()) is None:
            self._feed(super().receive())
        return data

    def _decrypted(self) -> bytes | None:
        """None when more must be read first."""
        with self._state:
            try:
                return self._tls.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                return None
            except ssl.SSLEOFError:
                return b""

    def _feed(self, data: bytes) -> None:
        with self._state:
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()


class Transport:
    """Makes streams of connections: all plain, or all TLS. Raises OSError for unusable files."""

    def __init__(self, tls: TlsPaths | None) -> None:
        self._contexts: dict[bool, ssl.SSLContext] = {}
        self._own = b""
        if tls is not None:
            self._contexts = {True: _context(tls, ssl.PROTOCOL_TLS_SERVER)}
            self._contexts[False] = _context(tls, ssl.PROTOCOL_TLS_CLIENT)
            # A file may hold the whole chain; the node's own certificate is the first.
            end = "-----END CERTIFICATE-----"
            first = Path(tls.certificate).read_text().partition(end)[0]
            begin = first.index("-----BEGIN CERTIFICATE-----")
            own = ssl.PEM_cert_to_DER_cert(first[begin:] + end)
            self._own = hashlib.sha256(own).digest()

    def open(self, connection: socket.socket, deadline: float, *, server_side: bool) -> RankStream:
        """Authenticated by certificates if there are any, until a monotonic time."""
        if not self._contexts:
            return RankStream(connection)
        context = self._contexts[server_side]
        stream = TlsStream(connection, context, self._own, server_side=server_side)
        stream.handshake(deadline)
        return stream


def _context(tls: TlsPaths, protocol: int) -> ssl.SSLContext:
    """Both sides need a certificate of the authority; names are not compared, as elsewhere."""
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(tls.certificate, tls.key)
    context.load_verify_locations(tls.authority)
    return context

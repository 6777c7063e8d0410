"""What a Zenoh session needs besides its configuration: files, and an option on its socket."""

from __future__ import annotations

import logging
import socket
import sys
from pathlib import Path

from skulkd.settings.files import make_private_dir, write_atomic

ACCEPT_PENDING = 2000
"""Connections that may be unauthenticated at once; a stranger occupies one for ten seconds."""
SILENCE_S = 10
"""How long the kernel keeps a connection that has not sent anything."""

log = logging.getLogger(__name__)


def password_file(file: Path, user: str, password: str) -> Path:
    """Whom this node lets in: a file that only its owner can read. Raises OSError.

    It is derived from the secret, so one that is there already is not written again: a node must
    be able to start on a full disk.
    """
    text = f"{user}:{password}\n".encode()
    if not _holds(file, text):
        make_private_dir(file.parent)
        write_atomic(file, text, mode=0o600)
    return file


def tls_settings(certificate: Path, key: Path, authority: Path) -> dict[str, object]:
    """Both sides show a certificate of the same authority."""
    return {
        "root_ca_certificate": str(authority),
        "listen_certificate": str(certificate),
        "listen_private_key": str(key),
        "connect_certificate": str(certificate),
        "connect_private_key": str(key),
        "enable_mtls": True,
        "verify_name_on_connect": False,
    }


def _holds(file: Path, text: bytes) -> bool:
    """Whether the file says this and nobody but its owner can read it."""
    try:
        return file.read_bytes() == text and file.stat().st_mode & 0o077 == 0
    except OSError:
        return False


def defer_accept(port: int) -> bool:
    """Let Zenoh accept only connections that have sent something. Linux only; False elsewhere.

    Zenoh's TLS listener pauses for 100 ms after every handshake that fails, and no setting of
    Zenoh changes that: 400 connections that stay silent would keep new nodes out for 40 s. With
    TCP_DEFER_ACCEPT they stay in the kernel. The socket is Zenoh's own, so it is found among the
    descriptors of this process.
    """
    if sys.platform != "linux":
        return False
    found = [_defer_accept_on(int(one.name), port) for one in Path("/proc/self/fd").iterdir()]
    if not any(found):
        log.warning("the cluster port %d has no listening socket in this process", port)
    return any(found)


def _defer_accept_on(descriptor: int, port: int) -> bool:
    """Whether this descriptor is a socket that listens on the port; the option is set then."""
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError:  # closed meanwhile, or not a socket
        return False
    try:
        listens = _is_listening(sock) and sock.getsockname()[1] == port
        if listens:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, SILENCE_S)
        return listens
    finally:
        sock.detach()  # it stays Zenoh's


def _is_listening(sock: socket.socket) -> bool:
    internet = sock.family in (socket.AF_INET, socket.AF_INET6)
    return internet and bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))

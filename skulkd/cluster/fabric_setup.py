"""What a Zenoh session needs besides its configuration: files, and options of its socket."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from skulkd.settings.files import make_private_dir, write_atomic

ACCEPT_PENDING = 2000
"""Connections that may be unauthenticated at once; a stranger occupies one for ten seconds."""
SILENCE_S = 10
"""How long the kernel keeps a connection that has not sent anything."""

log = logging.getLogger(__name__)


def password_file(file: Path, user: str, password: str) -> Path:
    """The credentials that Zenoh accepts, in a file that only its owner can read. Raises OSError.

    An existing file with the same content is not written again: a node must be able to start on a
    full disk.
    """
    text = f"{user}:{password}\n".encode()
    if not _holds(file, text):
        make_private_dir(file.parent)
        write_atomic(file, text, mode=0o600)
    return file


def tls_settings(certificate: Path, key: Path, authority: Path) -> dict[str, object]:
    """Mutual TLS: both sides present a certificate of the same authority."""
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
    """Whether the file has this content and only its owner can read it."""
    try:
        return file.read_bytes() == text and file.stat().st_mode & 0o077 == 0
    except OSError:
        return False


def defer_accept(port: int) -> bool:
    """Let Zenoh accept only connections that have sent something. Linux only; False elsewhere.

    Zenoh's TLS listener pauses for 100 ms after every handshake that fails, and no setting of
    Zenoh changes that: 400 connections that stay silent would keep new nodes out for 40 s. With
    TCP_DEFER_ACCEPT they stay in the kernel.
    """
    if sys.platform != "linux":
        return False
    with listener_on(port, find_listener(port)) as sock:
        if sock is None:
            log.warning("the cluster port %d has no listening socket in this process", port)
            return False
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, SILENCE_S)
        return True


def find_listener(port: int) -> int | None:
    """The descriptor on which Zenoh listens: its socket is one of this process. Linux only."""
    for one in Path("/proc/self/fd").iterdir():
        with listener_on(port, int(one.name)) as sock:
            if sock is not None:
                return int(one.name)
    return None


@contextlib.contextmanager
def listener_on(port: int, descriptor: int | None) -> Iterator[socket.socket | None]:
    """The socket behind a descriptor if it listens on the port; it stays open, it is Zenoh's."""
    try:
        sock = socket.socket(fileno=descriptor) if descriptor is not None else None
    except OSError:  # closed meanwhile, or not a socket
        sock = None
    try:
        listens = sock is not None and _is_listening(sock) and sock.getsockname()[1] == port
        yield sock if listens else None
    finally:
        if sock is not None:
            sock.detach()


def _is_listening(sock: socket.socket) -> bool:
    internet = sock.family in (socket.AF_INET, socket.AF_INET6)
    return internet and bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))

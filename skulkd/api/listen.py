"""Opening the sockets the API listens on, and saying who holds a port that is taken.

Knows addresses and sockets; nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import select
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import psutil

from skulkd.machine.redact import redact_command

BACKLOG = 512
_TURNS = 100
# The loop sees a client in one turn, accepts it in the next and serves it in the one after that.
_QUIET_TURNS = 4
_ABSENT = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


class ListenError(Exception):
    """The address cannot be used."""


class PortTaken(ListenError):
    """Another process listens there."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def url(self, *, tls: bool) -> str:
        return f"{'https' if tls else 'http'}://{self}"


def open_sockets(address: Address) -> list[socket.socket]:
    """A listening socket per IP address of the host; all on one port."""
    sockets: list[socket.socket] = []
    port = address.port
    try:
        for family, ip in _resolve(address):
            try:
                sock = _bind(family, ip, port)
            except OSError as error:
                if sockets and error.errno in _ABSENT:
                    continue
                raise
            sockets.append(sock)
            port = sock.getsockname()[1]
    except OSError as error:
        for sock in sockets:
            sock.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(_taken_message(address)) from error
        raise ListenError(f"cannot listen on {address}: {error.strerror or error}") from error
    return sockets


class Listener(Protocol):
    """What accepts connections: asyncio's server, or our own for TLS."""

    @property
    def sockets(self) -> tuple[socket.socket, ...]: ...

    def close(self) -> None: ...


async def stop_listening(servers: Iterable[Listener]) -> None:
    """Close, but not on clients that are connected already and wait to be accepted."""
    servers = list(servers)
    listening = [sock.fileno() for server in servers for sock in server.sockets]
    quiet = 0
    for _ in range(_TURNS):
        await asyncio.sleep(0)
        quiet = 0 if select.select(listening, [], [], 0)[0] else quiet + 1
        if quiet == _QUIET_TURNS:
            break
    for server in servers:
        server.close()


def holder_of(port: int) -> str | None:
    """The process that listens on a port, as far as this user may see it."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections(kind="tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.laddr
                and connection.laddr.port == port
                and connection.pid is not None
            ):
                return _describe(connection.pid)
    return None


def _resolve(address: Address) -> list[tuple[socket.AddressFamily, str]]:
    found = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return list(dict.fromkeys((family, str(where[0])) for family, _, _, _, where in found))


def _bind(family: socket.AddressFamily, ip: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((ip, port))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _taken_message(address: Address) -> str:
    holder = holder_of(address.port)
    who = f"held by {holder}" if holder else "held by a process this user cannot see"
    return (
        f"port {address.port} is taken ({address}), {who}.\n"
        f"Stop that process, or choose another port: skulkd run --listen {address.host}:0"
    )


def _describe(pid: int) -> str:
    process = psutil.Process(pid)
    try:
        command = redact_command(process.cmdline() or [process.name()])
        return f"pid {pid}, user {process.username()}: {command}"
    except psutil.Error:
        return f"pid {pid}"

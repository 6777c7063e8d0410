"""Opening and closing the sockets that the API listens on."""

from __future__ import annotations

import asyncio
import errno
import select
import socket
from collections.abc import Iterable
from typing import Protocol

from skulkd.machine.ports import Address, ListenError, PortTaken, holder_of

BACKLOG = 512
_TURNS = 100
# The loop sees a client in one turn, accepts it in the next and serves it in the one after that.
_QUIET_TURNS = 4
_ABSENT = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


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


class ApiListener(Protocol):
    """What accepts connections: asyncio's server, or our own for TLS."""

    @property
    def sockets(self) -> tuple[socket.socket, ...]: ...

    def close(self) -> None: ...


async def stop_listening(servers: Iterable[ApiListener]) -> None:
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
    return (
        f"port {address.port} is taken ({address}), held by {holder_of(address.port)}.\n"
        f"Stop that process, or choose another port: skulkd run --listen {address.host}:0"
    )

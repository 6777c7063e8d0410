"""Addresses to listen on: which are this machine's own, which ports are free, who holds one."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from dataclasses import dataclass
from functools import lru_cache

import psutil

from skulkd.machine.redact import redact_command


class ListenError(Exception):
    """The address cannot be used."""


class PortTaken(ListenError):
    """Another process listens there. The lines of `str()` are for the operator."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def url(self, *, tls: bool) -> str:
        return f"{'https' if tls else 'http'}://{self}"


@lru_cache(maxsize=256)
def is_loopback(ip: str) -> bool:
    """Whether an address literal is this machine, in IPv4, IPv6 or IPv4-mapped form."""
    try:
        address = ipaddress.ip_address(ip.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def is_local(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    return host == "localhost" or is_loopback(host)


def is_free(host: str, port: int) -> bool:
    try:
        _bound(host, port).close()
    except OSError:
        return False
    return True


def free_port(host: str) -> int:
    """A port that nobody listens on at this moment."""
    with _bound(host, 0) as sock:
        port: int = sock.getsockname()[1]
        return port


def holder_of(port: int) -> str:
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
    return "a process this user cannot see"


def _describe(pid: int) -> str:
    process = psutil.Process(pid)
    try:
        command = redact_command(process.cmdline() or [process.name()])
        return f"pid {pid}, user {process.username()}: {command}"
    except psutil.Error:
        return f"pid {pid}"


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(1)
    except OSError:
        sock.close()
        raise
    return sock

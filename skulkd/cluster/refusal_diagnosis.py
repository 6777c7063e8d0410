"""Finds out why a peer refuses this node, by probing its port.

Zenoh only keeps trying. A TLS handshake shows whether the peer requires TLS and which certificate
is not accepted; otherwise the reason is the secret or the namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
from collections.abc import Collection
from dataclasses import dataclass
from socket import SOCK_STREAM

from skulkd.settings.tls import TlsFiles
from skulkd.wire.config import parse_listen

ASK_S = 4.0
_GARBAGE_FRAME = b"\x04\x00\xff\xff\xff\xff"
_TLS_ALERT = b"\x15"


async def accepts_connections(address: str) -> bool:
    """Whether something accepts connections there."""
    host, port = parse_listen(address)
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1.0):
            _, writer = await asyncio.open_connection(host, port)
        writer.close()
        return True
    return False


async def is_own_address(peer: str, listen: str, addresses: Collection[str]) -> bool:
    """Whether `peer`, a host name perhaps, is where this node's fabric listens.

    `addresses` are those that others use; a wildcard listens on loopback, too.
    """
    host, port = parse_listen(peer)
    if port != parse_listen(listen)[1]:
        return False
    own = {ipaddress.ip_address(_host(one)) for one in (listen, *addresses) if _is_ip(_host(one))}
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=SOCK_STREAM)
    except OSError:
        return False
    here = {ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in found}
    wildcard = any(ip.is_unspecified for ip in own)
    return bool(here & own) or (wildcard and any(ip.is_loopback for ip in here))


def _host(address: str) -> str:
    return parse_listen(address)[0]


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def diagnose_refusal(address: str, tls: TlsFiles | None, secret_origin: str) -> str:
    """The reason why the peer at that address refuses this node."""
    if (reason := await _tls_reason(address, tls)) is not None:
        return reason
    return (
        "its cluster secret or namespace is another one"
        f" (this node's secret is from {secret_origin})"
    )


async def _tls_reason(address: str, tls: TlsFiles | None) -> str | None:
    found = await _handshake(address, _context(tls))
    if tls is None:
        encrypted = "its links are encrypted; set cluster.tls on this node, too"
        return encrypted if isinstance(found, _Encrypted) else None
    match found:
        case _Silent():
            return f"it did not answer a TLS handshake within {ASK_S:g} s; it may be overloaded"
        case _Plain():
            return "its links are not encrypted, this node's are (cluster.tls)"
        case _Encrypted(error=ssl.SSLCertVerificationError()):
            return f"its certificate is not of this node's authority ({tls.authority})"
        case _Encrypted(error=ssl.SSLError()):
            return f"it does not accept this node's certificate ({tls.certificate})"
    return None


def _context(tls: TlsFiles | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if tls is None:
        context.verify_mode = ssl.CERT_NONE  # no data is sent, the probe only detects TLS
    else:
        context.load_verify_locations(tls.authority)
        context.load_cert_chain(tls.certificate, tls.key)
    return context


class _Plain:
    """It answers, but not in TLS."""


class _Silent:
    """It accepts the connection and sends nothing."""


@dataclass(frozen=True, slots=True)
class _Encrypted:
    """It speaks TLS; `error` is how the connection ended, None while it stays open."""

    error: Exception | None


async def _handshake(address: str, context: ssl.SSLContext) -> _Plain | _Silent | _Encrypted:
    host, port = parse_listen(address)
    try:
        async with asyncio.timeout(ASK_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLCertVerificationError as error:
        return _Encrypted(error)
    except TimeoutError:
        return _Plain() if await _rejects_garbage(host, port) else _Silent()
    except OSError:
        return _Plain()
    try:
        # Whether it takes this node's certificate comes after the handshake.
        async with asyncio.timeout(1.0):
            await reader.read(1)
    except (OSError, TimeoutError) as error:
        return _Encrypted(error)
    finally:
        writer.transport.abort()
    return _Encrypted(None)


async def _rejects_garbage(host: str, port: int) -> bool:
    """Whether a frame without meaning makes it hang up, as Zenoh without TLS does.

    To Zenoh a TLS greeting is the beginning of a longer frame, so it waits for the rest.
    """
    try:
        async with asyncio.timeout(ASK_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(_GARBAGE_FRAME)
                answer = await reader.read(1)
            finally:
                writer.transport.abort()
    except ConnectionError:
        return True
    except (OSError, TimeoutError):
        return False
    return answer != _TLS_ALERT

"""Why a node that answers does not let this one in: found by asking its port, said in one line.

The fabric itself only keeps trying. Whether the other side wants TLS, and whose certificate is
not accepted, a handshake tells at once; what is left is the secret or the namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
from collections.abc import Collection
from socket import SOCK_STREAM

from skulkd.cluster.fabric import TlsFiles
from skulkd.wire.config import parse_listen

ASK_S = 4.0


class BadCertificate(ValueError):
    """A file of `cluster.tls` that cannot be used; `str()` names its key."""


async def answers(address: str) -> bool:
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


def check_files(tls: TlsFiles) -> None:
    """Raises BadCertificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    files = {"certificate": tls.certificate, "key": tls.key, "authority": tls.authority}
    for key, file in files.items():
        try:
            file.open("rb").close()
        except OSError as error:
            raise BadCertificate(f"cluster.tls.{key}: {file}: {error.strerror}") from error
    try:
        context.load_verify_locations(tls.authority)
    except (ssl.SSLError, OSError) as error:
        raise BadCertificate(
            f"cluster.tls.authority: {tls.authority} is no PEM certificate"
        ) from error
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except (ssl.SSLError, OSError) as error:
        raise BadCertificate(
            f"cluster.tls.certificate: {tls.certificate} and the key {tls.key} are no pair of a PEM"
            " certificate and its private key"
        ) from error


async def why_refused(address: str, tls: TlsFiles | None, secret_origin: str) -> str:
    """What stands between this node and the one that answers at that address."""
    if (reason := await _tls_reason(address, tls)) is not None:
        return reason
    return (
        "its cluster secret or namespace is another one"
        f" (this node's secret is from {secret_origin})"
    )


async def _tls_reason(address: str, tls: TlsFiles | None) -> str | None:
    if tls is None:
        if await _handshake(address, _context(None)) is None:
            return None
        return (
            "its links are encrypted and it wants a certificate; set cluster.tls on this node, too"
        )
    error = await _handshake(address, _context(tls))
    if error is None:
        return "its links are not encrypted, this node's are (cluster.tls)"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not of this node's authority ({tls.authority})"
    if isinstance(error, ssl.SSLError):
        return f"it does not accept this node's certificate ({tls.certificate})"
    return None


def _context(tls: TlsFiles | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if tls is None:
        context.verify_mode = ssl.CERT_NONE  # nothing is said to it; it is only asked for TLS
    else:
        context.load_verify_locations(tls.authority)
        context.load_cert_chain(tls.certificate, tls.key)
    return context


async def _handshake(address: str, context: ssl.SSLContext) -> Exception | None:
    """None when that is no TLS; else how it went on: a TimeoutError is an open door."""
    host, port = parse_listen(address)
    try:
        async with asyncio.timeout(ASK_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLCertVerificationError as error:
        return error
    except (OSError, TimeoutError):
        return None
    try:
        # Whether it takes this node's certificate comes after the handshake.
        async with asyncio.timeout(1.0):
            await reader.read(1)
    except (OSError, TimeoutError) as error:
        return error
    finally:
        writer.transport.abort()
    return TimeoutError()

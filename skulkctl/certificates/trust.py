"""Whose certificates are accepted from an https endpoint, and why one was not, in plain words."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from skulkctl.contexts import DEFAULT_NAME, ONE_OFF_NAME
from skulkctl.errors import NotFound, Refused

if TYPE_CHECKING:
    from pathlib import Path

    from skulkctl.contexts import Target
    from skulkd.settings.certificates import Certificate

LOOK_S = 15.0
_LOOK_AGAIN_S = 3.0
# From OpenSSL's x509_vfy.h; Python gives the numbers no names.
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21)
_HOST_MISMATCH = (62, 64)
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")

Explained = tuple[str, tuple[str, ...]]
"""Why there is no connection, and what helps."""


def tls_context(target: Target) -> ssl.SSLContext:
    """Names are always checked. With a `ca` only that authority counts; without one the system's,
    and that of this machine's daemon. Raises NotFound or Refused for a file that cannot be used.
    """
    if target.ca is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _trust(context, target.ca)
    else:
        context = ssl.create_default_context()
        if target.local_authority is not None:
            _trust(context, target.local_authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def explain(error: ssl.SSLError, endpoint: str, target: Target) -> Explained:
    """Why the handshake with an https endpoint failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _explain_certificate(error, endpoint, target)
    reason = error.reason or ""
    if reason in _NOT_TLS:
        plain = endpoint.replace("https://", "http://", 1)
        why = "it responds, but does not speak TLS"
        return why, (f"if it serves plain HTTP:  {_point_to(target, plain)}",)
    inspect = f"inspect its certificate:  skulkctl tls status {endpoint}"
    if "PROTOCOL" in reason or "HANDSHAKE_FAILURE" in reason:
        return "it and skulkctl have no TLS version in common (1.2 or newer)", (inspect,)
    return f"TLS failed: {reason.replace('_', ' ').lower() or 'handshake failed'}", (inspect,)


def peer_certificate(endpoint: str, limit_s: float = LOOK_S) -> Certificate:
    """What an endpoint shows, trusted or not. Raises OSError or ValueError."""
    from skulkd.settings.certificates import parse_certificate

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent; the certificate is only looked at
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    with (
        socket.create_connection((host, parts.port or 443), limit_s) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        return parse_certificate(secure.getpeercert(binary_form=True) or b"")


def handshake(endpoint: str, target: Target, limit_s: float = LOOK_S) -> str | None:
    """Why this machine would not accept an endpoint's certificate; None when it would."""
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    context = tls_context(target)
    try:
        with (
            socket.create_connection((host, parts.port or 443), limit_s) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return None
    except ssl.SSLError as error:
        return explain(error, endpoint, target)[0]
    except OSError as error:
        return (error.strerror or str(error)).lower()


def _explain_certificate(
    error: ssl.SSLCertVerificationError, endpoint: str, target: Target
) -> Explained:
    host = urlsplit(endpoint).hostname or ""
    shown = _look(endpoint)
    if error.verify_code in _UNKNOWN_AUTHORITY:
        who = f" ({shown.issuer})" if shown else ""
        why = f"its certificate is signed by an authority that is not trusted here{who}"
        return why, (_give_ca(target),)
    if error.verify_code in _HOST_MISMATCH:
        names = ", ".join(shown.names) if shown else "other names"
        return (
            f"its certificate is for {names or 'no name'}, not for {host}",
            ("use one of these names, or reissue it:  skulkctl tls issue NODE --host NAME",),
        )
    if error.verify_code == _EXPIRED:
        from skulkd.settings.certificates import day

        when = f" on {day(shown.not_after)}" if shown else ""
        why = f"its certificate, or that of its CA, expired{when}"
        return why, ("on the machine with the CA's key, run:  skulkctl tls issue NODE --renew",)
    if error.verify_code == _NOT_YET_VALID:
        return "its certificate is not valid yet", ("check the clocks of both machines",)
    return f"its certificate is not accepted: {error.verify_message}", (_give_ca(target),)


def _look(endpoint: str) -> Certificate | None:
    try:
        return peer_certificate(endpoint, _LOOK_AGAIN_S)
    except (OSError, ValueError):
        return None  # it is only for the words


def _give_ca(target: Target) -> str:
    name = target.context.name
    if name in (ONE_OFF_NAME, DEFAULT_NAME):
        return "trust the cluster's CA:  SKULK_CA=ca.pem skulkctl ..."
    return f"trust the cluster's CA:  skulkctl context set {name} --ca ca.pem"


def _point_to(target: Target, endpoint: str) -> str:
    name = target.context.name
    if name in (ONE_OFF_NAME, DEFAULT_NAME):
        return f"skulkctl --endpoint {endpoint} ..."
    return f"skulkctl context set {name} {endpoint}"


def _trust(context: ssl.SSLContext, file: Path) -> None:
    try:
        context.load_verify_locations(file)
    except FileNotFoundError:
        raise NotFound(f"no CA file {file}") from None
    except ssl.SSLError:
        raise Refused(f"{file} is no PEM certificate") from None
    except OSError as error:
        raise Refused(f"cannot read the CA file {file}", error.strerror or str(error)) from None

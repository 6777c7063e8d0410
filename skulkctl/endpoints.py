"""Addresses of daemons: how they are typed, checked and spelled. Pure."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

DEFAULT_PORT = 52415
DEFAULT_ENDPOINT = f"http://127.0.0.1:{DEFAULT_PORT}"


def parse_endpoint(text: str, *, secure: bool = False) -> str:
    """The base URL of `http://HOST:PORT`, `https://HOST` or `HOST[:PORT]`.

    With `secure` an address without a scheme is one of a daemon that serves HTTPS. Raises
    ValueError with a sentence for the user.
    """
    typed = text.strip()
    is_short = "://" not in typed
    usual = "https" if secure else "http"
    with_scheme = f"{usual}://{_bracketed(typed)}" if is_short else typed
    try:
        parts = urlsplit(with_scheme)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{typed!r} is not an address: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"{typed!r} is not an address: use http:// or https://")
    if not host or any(char.isspace() for char in typed):
        raise ValueError(f"{typed!r} is not an address; write HOST, HOST:PORT or http://HOST:PORT")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError(f"{host!r}: an address has no user, password, query or fragment")
    if port == 0:
        raise ValueError(f"{typed!r} is not an address: port 0 cannot be reached")
    shown = f"[{host}]" if ":" in host else host
    if port is None and (is_short or parts.scheme == "http"):
        port = DEFAULT_PORT
    return f"{parts.scheme}://{shown}{f':{port}' if port else ''}{parts.path.rstrip('/')}"


def is_loopback(endpoint: str) -> bool:
    """Whether the address is this machine by its spelling alone."""
    host = urlsplit(endpoint).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_own_network(peer: str) -> bool:
    """Whether an IP address is another machine of a private network (or Tailscale's range)."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    carrier = address.version == 4 and address in ipaddress.ip_network("100.64.0.0/10")
    return (address.is_private or carrier) and not address.is_loopback


def start_command(endpoint: str) -> str:
    """The command that would start a daemon at that address."""
    if endpoint == DEFAULT_ENDPOINT:
        return "skulkd run"
    parts = urlsplit(endpoint)
    host = parts.hostname if is_loopback(endpoint) else "0.0.0.0"  # noqa: S104 (text of a hint)
    host = "127.0.0.1" if host == "localhost" else host
    shown = f"[{host}]" if host and ":" in host else host
    command = f"skulkd run --listen {shown}:{parts.port or DEFAULT_PORT}"
    return command if is_loopback(endpoint) else f"{command}   (on {parts.hostname})"


def _bracketed(typed: str) -> str:
    """A bare IPv6 address needs brackets before it can be part of a URL."""
    try:
        is_v6 = ipaddress.ip_address(typed).version == 6
    except ValueError:
        return typed
    return f"[{typed}]" if is_v6 else typed

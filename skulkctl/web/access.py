"""Who may open the application in a browser. Pure; the server asks it for every request.

A browser sends requests for any page that it shows, so the server must tell its own page from
others: by `Host` (a name that was rebound to this machine is not ours), by `Origin`, and by what
the browser says of the page that asks. On addresses of other machines it also wants the token.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from skulkctl.errors import Refused, UsageMistake

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 52480
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Address:
    """Where to listen."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT

    @property
    def is_loopback(self) -> bool:
        address = _ip(self.host)
        return self.host == "localhost" or (address is not None and address.is_loopback)

    @property
    def is_wildcard(self) -> bool:
        address = _ip(self.host)
        return address is not None and address.is_unspecified

    @property
    def url(self) -> str:
        """What to type into a browser on this machine."""
        host = DEFAULT_HOST if self.is_wildcard else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"


def parse_address(typed: str | None) -> Address:
    """`HOST:PORT`, `HOST`, `:PORT` or nothing. Raises UsageMistake."""
    if not typed:
        return Address()
    bare = _ip(typed)
    try:
        parts = urlsplit(f"//[{typed}]" if bare is not None and bare.version == 6 else f"//{typed}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
        parts = urlsplit("")
    is_only_port = typed.startswith(":") and port is not None
    if parts.netloc in ("", ":") or parts.path or parts.username or not (host or is_only_port):
        raise UsageMistake(
            f"{typed!r} is not an address to serve on",
            "write HOST:PORT, HOST or :PORT",
            hints=[f"skulkctl ui --serve {DEFAULT_HOST}:{DEFAULT_PORT}"],
        )
    return Address(host or DEFAULT_HOST, DEFAULT_PORT if port is None else port)


def needed_token(address: Address, token: str | None) -> str | None:
    """The token that visitors must show. Raises Refused where one is needed and none is known."""
    if address.is_loopback:
        return None
    if not token:
        raise Refused(
            f"not serving on {address.host}: that needs the cluster's token",
            "other machines could open it, and no token is configured here",
            hints=[
                "set SKULK_TOKEN, or:  skulkctl context set NAME --token-file FILE",
                "serve on this machine only:  skulkctl ui --serve",
            ],
        )
    return token


@dataclass(frozen=True)
class Access:
    """The rules of one server."""

    address: Address
    host_names: frozenset[str] = frozenset()
    """Names of this machine besides its addresses."""
    token: str | None = None
    session: str = ""
    """The cookie of those who have shown the token."""

    @property
    def cookie(self) -> str:
        """Cookies do not know ports, so that of another server must have another name."""
        return f"skulkctl-{self.address.port}"

    def problem(self, path: str, headers: Mapping[str, str]) -> str | None:
        """Why this request is not one of our own page; None if it is."""
        host = headers.get("Host", "")
        if not self._is_ours(host):
            return f"this server does not answer for the host {host or 'that was not given'!r}"
        origin = headers.get("Origin")
        if origin is None and path == "/ws":
            return "a websocket needs an Origin"
        if origin is not None and origin != f"http://{host}":
            return f"the page {origin} may not open this application"
        site = headers.get("Sec-Fetch-Site", "none")
        if site == "cross-site" and headers.get("Sec-Fetch-Dest") != "document":
            return "another page may not open this application"
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname or "", parts.port or 80
        except ValueError:
            return False
        if port != self.address.port:
            return False
        if self.address.is_loopback:
            return name in _LOCAL_NAMES or name == self.address.host
        # A number cannot be rebound to another machine, a name can.
        return name in {self.address.host, *self.host_names} or (
            self.address.is_wildcard and (name == "localhost" or _ip(name) is not None)
        )

    def admits(self, cookies: Mapping[str, str]) -> bool:
        """Whether the token has been shown, where one is needed."""
        return self.token is None or _same(cookies.get(self.cookie, ""), self.session)

    def accepts(self, token: str) -> bool:
        return self.token is not None and _same(token, self.token)


def _same(shown: str, expected: str) -> bool:
    return hmac.compare_digest(shown.encode(), expected.encode())


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None

"""Rules for the web addresses in `skulk.yaml`."""

from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


def check_origin(value: str) -> str:
    """A web origin as browsers send it. Raises ValueError."""
    if value == "*":
        raise ValueError("must name each origin; * would let any web page use this node")
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise ValueError("must be an origin such as https://example.org:8443") from None
    host = parts.hostname
    if parts.scheme not in _DEFAULT_PORTS or not host or "@" in parts.netloc:
        raise ValueError("must be an origin such as https://example.org:8443")
    name = f"[{host}]" if ":" in host else host
    shown_port = "" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}"
    # Browsers send exactly this form, so any other spelling would never match.
    canonical = f"{parts.scheme}://{name}{shown_port}"
    if value != canonical:
        raise ValueError(f"must be written as {canonical}")
    return value


def check_http_url(value: str) -> str:
    """Empty, or a URL without a password. Raises ValueError."""
    if not value:
        return value
    try:
        parts = urlsplit(value)
        valid = parts.scheme in _DEFAULT_PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or " " in value:
        raise ValueError("must be empty or a URL that begins with http:// or https://")
    if "@" in parts.netloc:
        # The URL is shown in diagnostics, where a password must not be.
        raise ValueError("must not hold a user name or password; give them to the log shipper")
    return value

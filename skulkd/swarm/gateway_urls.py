"""URLs of a gateway: which may get this node's token, and where calls about jobs go. Pure.

The runtime token goes with every call, so nothing is sent in the clear across the internet or to
a host that the owner did not name.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from skulkd.swarm.errors import ConfigError
from skulkd.swarm.js_values import encode_component, mapping_of, optional_text, printable

PREFIX = "/v1/swarm/self-hosted/node"
_KEYS = {
    "poll": "jobs_poll_path",
    "start": "jobs_start_path_template",
    "events": "jobs_events_path_template",
    "result": "jobs_result_path_template",
}
_DEFAULTS = {
    "poll": f"{PREFIX}/jobs/poll",
    "start": f"{PREFIX}/jobs/:jobId/start",
    "events": f"{PREFIX}/jobs/:jobId/events",
    "result": f"{PREFIX}/jobs/:jobId/result",
}
_JOB_ID_MARKS = (":jobId", ":job_id", "{jobId}", "{job_id}")
_UNUSUAL = re.compile(r"[\x00-\x20\x7f\\]")
# Visible ASCII without what a URL parser may read in two ways.
_USABLE = re.compile(r"[!-\[\]-~]{1,2048}")
_PRIVATE = {
    4: [
        ipaddress.ip_network(network)
        for network in (
            "0.0.0.0/32",  # this machine, for a client
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.168.0.0/16",
        )
    ],
    6: [ipaddress.ip_network(network) for network in ("::/127", "fc00::/7", "fe80::/10")],
}
# ASCII only: a resolver turns other digits and dots into ASCII ones.
_LABEL = r"[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?"
_LOCAL_NAME = re.compile(rf"{_LABEL}|(?:{_LABEL}\.)+(?:local|localhost)")
log = logging.getLogger(__name__)


def check_gateway_url(url: str) -> str:
    """The URL without trailing slashes.

    Raises ConfigError for what is no plain URL, and for tokens in the clear across the internet.
    """
    shown = printable(url[:200])
    try:
        parts = urlsplit(url)
        port_ok = parts.port != 0
    except ValueError as error:
        raise ConfigError(f"the gateway URL {shown} is not valid: {error}") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or not port_ok:
        raise ConfigError(f"the gateway must be an http or https URL, not {shown}")
    if _UNUSUAL.search(url) or parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(
            f"the gateway URL {shown} must not contain spaces, backslashes, credentials,"
            " a query or a fragment"
        )
    if parts.scheme == "http" and not is_private_host(parts.hostname):
        raise ConfigError(f"{shown} would send the runtime token unencrypted; use https")
    return url.rstrip("/")


def same_gateway(first: str, second: str) -> bool:
    """Whether two checked URLs lead to the same gateway."""
    return _endpoint(first) == _endpoint(second)


def _endpoint(url: str) -> tuple[str, str | None, int, str]:
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    return parts.scheme, parts.hostname, port, parts.path.rstrip("/")


def is_private_host(host: str) -> bool:
    """A host of this machine or its own networks.

    Addresses are read as resolvers read them, so `134744072` is 8.8.8.8. A name without a dot
    can only be resolved by the local network.
    """
    name = host.strip("[]").lower()
    address = _address(name)
    if address is not None:
        # A zone id, as in fe80::1%eth0, does not change the network.
        return any(address in network for network in _PRIVATE[address.version])
    return _LOCAL_NAME.fullmatch(name) is not None


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(name)
    except ValueError:
        return _legacy_ipv4(name)
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


def _legacy_ipv4(name: str) -> ipaddress.IPv4Address | None:
    """One to four decimal, octal or hexadecimal numbers."""
    try:
        return ipaddress.IPv4Address(socket.inet_aton(name))
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class JobUrls:
    """Where calls about jobs go: what the gateway said at enrolment, else the defaults."""

    base_url: str
    templates: Mapping[str, str]

    def url(self, step: str, job_id: str = "") -> str:
        template = self.templates.get(step) or _DEFAULTS[step]
        for mark in _JOB_ID_MARKS:
            template = template.replace(mark, encode_component(job_id))
        return template if "://" in template else f"{self.base_url}/{template.lstrip('/')}"


def job_urls(base_url: str, state: Mapping[str, Any]) -> JobUrls:
    """From the state file; a template that leads to another host is not used."""
    templates: dict[str, str] = {}
    for step, key in _KEYS.items():
        template = optional_text(state.get(key))
        if template is None:
            continue
        flaw = _template_flaw(step, template, base_url)
        if flaw is None:
            templates[step] = template
        else:
            log.warning("%s %s and is not used", key, flaw)
    return JobUrls(base_url, templates)


def _template_flaw(step: str, template: str, base_url: str) -> str | None:
    if not _USABLE.fullmatch(template):
        return "is not a plain path or URL"
    if "://" in template and not _same_origin(template, base_url):
        return "is of another host than the gateway"
    if step != "poll" and not any(mark in template for mark in _JOB_ID_MARKS):
        return "has no place for the job id"
    return None


def stored_templates(response: Mapping[str, Any]) -> dict[str, str]:
    """The keys of an enrolment's response that the state file keeps."""
    relay = mapping_of(response.get("relay"))
    found = {key: optional_text(relay.get(key)) for key in _KEYS.values()}
    return {key: text for key, text in found.items() if text and _USABLE.fullmatch(text)}


def _same_origin(url: str, base_url: str) -> bool:
    try:
        return _origin(url) == _origin(base_url)
    except ValueError:
        return False  # no valid URL at all


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port

"""Where a gateway wants calls about jobs to go, when it says so at enrolment. Pure.

The runtime token goes with those calls, so an address elsewhere is not followed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from skulkd.swarm.script_values import encode_component, optional_text

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
# Visible ASCII without what a URL parser may read in two ways.
_USABLE = re.compile(r"[!-\[\]-~]{1,2048}")
_PLACES = (":jobId", ":job_id", "{jobId}", "{job_id}")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Relay:
    """Addresses by step; `base_url` is the gateway's own."""

    base_url: str
    steps: Mapping[str, str]

    def url(self, step: str, job_id: str = "") -> str:
        address = self.steps.get(step) or _DEFAULTS[step]
        for place in _PLACES:
            address = address.replace(place, encode_component(job_id))
        return address if "://" in address else f"{self.base_url}/{address.lstrip('/')}"


def relay_of(base_url: str, state: Mapping[str, Any]) -> Relay:
    """What the state file keeps of it; an address of another host is not used."""
    steps: dict[str, str] = {}
    for step, key in _KEYS.items():
        address = optional_text(state.get(key))
        if address is None:
            continue
        if not _USABLE.fullmatch(address):
            log.warning("%s is not a plain path or URL and is not used", key)
            continue
        if "://" in address and not _same_origin(address, base_url):
            log.warning("%s is of another host than the gateway and is not used", key)
            continue
        if step != "poll" and not any(place in address for place in _PLACES):
            log.warning("%s has no place for the job and is not used", key)
            continue
        steps[step] = address
    return Relay(base_url, steps)


def kept_relay(answer: Mapping[str, Any]) -> dict[str, str]:
    """The keys of an enrolment's answer that the state file keeps."""
    relay = answer.get("relay")
    facts = relay if isinstance(relay, Mapping) else {}
    found = {key: optional_text(facts.get(key)) for key in _KEYS.values()}
    return {key: text for key, text in found.items() if text and _USABLE.fullmatch(text)}


def _same_origin(address: str, base_url: str) -> bool:
    try:
        return _origin(address) == _origin(base_url)
    except ValueError:
        return False  # no valid URL at all


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port

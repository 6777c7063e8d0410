"""Talking to a gateway: JSON over POST, one deadline per call. Knows shapes of no body.

The runtime token goes into one header and nowhere else; redirects are not followed, because
they would carry it to somebody else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from skulkd.swarm.messages import redact
from skulkd.swarm.node_config import ConfigError
from skulkd.swarm.pacing import is_private_host
from skulkd.swarm.relay import PREFIX, Relay
from skulkd.swarm.script_values import compact_json

GONE = 410
_SHOWN = 200
_MAX_ANSWER_BYTES = 16 * 1024 * 1024


class GatewayError(Exception):
    """A call failed. `status` is None when there was no answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Credentials:
    """At most one of them goes with a call."""

    token: str | None = None
    api_key: str | None = None

    def headers(self) -> dict[str, str]:
        if self.token is not None:
            return {"authorization": f"Bearer {self.token}"}
        return {} if self.api_key is None else {"x-api-key": self.api_key}

    def __repr__(self) -> str:
        return "Credentials(…)"


def check_gateway_url(url: str) -> str:
    """Raises ConfigError for what is no URL, and for tokens in the clear across the internet."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"the gateway must be an http or https URL, not {url[:200]}")
    if parts.scheme == "http" and not is_private_host(parts.hostname):
        raise ConfigError(f"{url[:200]} would send the runtime token unencrypted; use https")
    return url.rstrip("/")


class Gateway:
    """One gateway. Calls raise GatewayError."""

    def __init__(
        self,
        base_url: str,
        session: aiohttp.ClientSession,
        request_timeout_s: float,
        relay: Relay | None = None,
    ) -> None:
        self.base_url = base_url
        self._relay = relay or Relay(base_url, {})
        self._session = session
        self._timeout_s = request_timeout_s

    async def bootstrap(self, api_key: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._post("/bootstrap", body, Credentials(api_key=api_key))

    async def enroll(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._post("/enroll", body, Credentials())

    async def heartbeat(self, token: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._post("/heartbeat", body, Credentials(token))

    async def poll(self, token: str, body: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        return await self._post(self._relay.url("poll"), body, Credentials(token), timeout_s)

    async def start(self, token: str, job_id: str, body: Mapping[str, Any]) -> None:
        await self._post(self._relay.url("start", job_id), body, Credentials(token))

    async def events(self, token: str, job_id: str, body: Mapping[str, Any]) -> None:
        await self._post(self._relay.url("events", job_id), body, Credentials(token))

    async def result(
        self, token: str, job_id: str, body: Mapping[str, Any], timeout_s: float
    ) -> None:
        url = self._relay.url("result", job_id)
        await self._post(url, body, Credentials(token), timeout_s)

    async def uninstall(self, token: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._post("/uninstall", body, Credentials(token))

    async def _post(
        self,
        place: str,
        body: Mapping[str, Any],
        credentials: Credentials,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        headers = {"content-type": "application/json", **credentials.headers()}
        timeout = aiohttp.ClientTimeout(total=timeout_s or self._timeout_s)
        try:
            async with self._session.post(
                place if "://" in place else f"{self.base_url}{PREFIX}{place}",
                data=compact_json(body).encode(),
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                return await _answer(response, credentials)
        except TimeoutError as error:
            seconds = timeout_s or self._timeout_s
            raise GatewayError(f"no answer from the gateway in {seconds:g} s") from error
        except aiohttp.ClientError as error:
            text = redact(str(error), (credentials.token, credentials.api_key))
            raise GatewayError(f"the gateway cannot be reached: {text}") from error


async def _answer(response: aiohttp.ClientResponse, credentials: Credentials) -> dict[str, Any]:
    raw = bytearray()
    async for piece in response.content.iter_any():
        raw += piece
        if len(raw) > _MAX_ANSWER_BYTES:
            raise GatewayError("the gateway's answer is too large", response.status)
    text = raw.decode("utf-8", "replace")
    if not 200 <= response.status < 300:
        shown = redact(text[:_SHOWN], (credentials.token, credentials.api_key))
        raise GatewayError(f"request_failed:{response.status}:{shown}", response.status)
    try:
        found = json.loads(text)
    except ValueError as error:
        raise GatewayError("the gateway's answer is no JSON", response.status) from error
    return found if isinstance(found, dict) else {}

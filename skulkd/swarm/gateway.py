"""Talking to a gateway: JSON over POST, one deadline per call. Knows shapes of no body.

The runtime token goes into one header and nowhere else; redirects are not followed, because
they would carry it to somebody else.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from skulkd.swarm.answers import parse_answer, printable, well_formed
from skulkd.swarm.errors import ConfigError, GatewayError
from skulkd.swarm.messages import redact
from skulkd.swarm.pacing import is_private_host
from skulkd.swarm.relay import PREFIX, Relay
from skulkd.swarm.script_values import json_text

GONE = 410
_SHOWN = 200
_REDACTED_BYTES = 64 * 1024
# No compression: a small response could unpack into a very large one.
_HEADERS = {"content-type": "application/json", "accept-encoding": "identity"}
_UNUSUAL = re.compile(r"[\x00-\x20\x7f\\]")
MAX_JOB_BYTES = 8 * 1024 * 1024
MAX_ANSWER_BYTES = 1024 * 1024
# Parsing more than this would hold up the event loop noticeably.
_PARSE_INLINE_BYTES = 64 * 1024


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


def same_gateway(one: str, other: str) -> bool:
    """Whether two checked URLs lead to the same gateway."""
    return _place(one) == _place(other)


def _place(url: str) -> tuple[str, str | None, int, str]:
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    return parts.scheme, parts.hostname, port, parts.path.rstrip("/")


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
        url = self._relay.url("poll")
        return await self._post(url, body, Credentials(token), timeout_s, MAX_JOB_BYTES)

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
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=timeout_s or self._timeout_s)
        secrets = (credentials.token, credentials.api_key)
        try:
            async with self._session.post(
                place if "://" in place else f"{self.base_url}{PREFIX}{place}",
                data=well_formed(json_text(body)).encode(),
                headers={**_HEADERS, **credentials.headers()},
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                raw = await _read(response, max_bytes)
                return await _answer(raw, response.status, secrets)
        except TimeoutError as error:
            seconds = timeout_s or self._timeout_s
            raise GatewayError(f"no answer from the gateway in {seconds:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # ValueError: aiohttp refuses URLs, headers and bodies that it cannot send.
            text = printable(redact(str(error) or type(error).__name__, secrets))[:_SHOWN]
            raise GatewayError(f"the gateway cannot be reached: {text}") from error


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    raw = bytearray()
    async for piece in response.content.iter_any():
        raw += piece
        if len(raw) > max_bytes:
            message = f"the gateway's response is larger than {max_bytes} bytes"
            raise GatewayError(message, response.status)
    return bytes(raw)


async def _answer(raw: bytes, status: int, secrets: tuple[str | None, ...]) -> dict[str, Any]:
    if not 200 <= status < 300:
        # Redacted before it is cut: half a secret would not be recognised.
        text = redact(raw[:_REDACTED_BYTES].decode("utf-8", "replace"), secrets)
        raise GatewayError(f"request_failed:{status}:{printable(text[:_SHOWN])}", status)
    if len(raw) <= _PARSE_INLINE_BYTES:
        return parse_answer(raw, status)
    return await asyncio.to_thread(parse_answer, raw, status)

"""The HTTP client of a gateway: JSON over POST, one deadline per call, bounded responses.

The runtime token goes into one header and nowhere else; redirects are not followed, because they
would send it to another host. A response that cannot be used raises GatewayError.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp

from skulkd.swarm.errors import GatewayError, redact
from skulkd.swarm.gateway_urls import PREFIX, JobUrls
from skulkd.swarm.js_values import json_text, printable, well_formed

GONE = 410
MAX_JOB_BYTES = 8 * 1024 * 1024
MAX_RESPONSE_BYTES = 1024 * 1024
MAX_DEPTH = 100
_SHOWN = 200
_REDACTED_BYTES = 64 * 1024
# No compression: a small response could unpack into a very large one.
_HEADERS = {"content-type": "application/json", "accept-encoding": "identity"}
# Parsing more than this would hold up the event loop noticeably.
_PARSE_INLINE_BYTES = 64 * 1024

Body = Mapping[str, Any]
Response = dict[str, Any]


class Gateway:
    """One gateway. `token` gives the runtime token. Calls raise GatewayError."""

    def __init__(
        self,
        base_url: str,
        http: aiohttp.ClientSession,
        request_timeout_s: float,
        token: Callable[[], str] = lambda: "",
        urls: JobUrls | None = None,
    ) -> None:
        self._base_url = base_url
        self._http = http
        self._timeout_s = request_timeout_s
        self.token = token
        self._urls = urls or JobUrls(base_url, {})

    async def bootstrap(self, api_key: str, body: Body) -> Response:
        return await self._post("/bootstrap", body, {"x-api-key": api_key})

    async def enroll(self, body: Body) -> Response:
        return await self._post("/enroll", body, {})

    async def heartbeat(self, body: Body) -> Response:
        return await self._post("/heartbeat", body, self._bearer())

    async def poll(self, body: Body, timeout_s: float) -> Response:
        url = self._urls.url("poll")
        return await self._post(url, body, self._bearer(), timeout_s, MAX_JOB_BYTES)

    async def start(self, job_id: str, body: Body) -> None:
        await self._post(self._urls.url("start", job_id), body, self._bearer())

    async def events(self, job_id: str, body: Body) -> None:
        await self._post(self._urls.url("events", job_id), body, self._bearer())

    async def result(self, job_id: str, body: Body, timeout_s: float) -> None:
        await self._post(self._urls.url("result", job_id), body, self._bearer(), timeout_s)

    async def uninstall(self, body: Body) -> Response:
        return await self._post("/uninstall", body, self._bearer())

    def _bearer(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token()}"}

    async def _post(
        self,
        path: str,
        body: Body,
        credentials: Mapping[str, str],
        timeout_s: float | None = None,
        max_bytes: int = MAX_RESPONSE_BYTES,
    ) -> Response:
        limit_s = timeout_s or self._timeout_s
        secrets = [value.removeprefix("Bearer ") for value in credentials.values()]
        try:
            async with self._http.post(
                path if "://" in path else f"{self._base_url}{PREFIX}{path}",
                data=well_formed(json_text(body)).encode(),
                headers={**_HEADERS, **credentials},
                timeout=aiohttp.ClientTimeout(total=limit_s),
                allow_redirects=False,
            ) as response:
                raw = await _read(response, max_bytes)
                return await _parsed(raw, response.status, secrets)
        except TimeoutError as error:
            raise GatewayError(f"no answer from the gateway in {limit_s:g} s") from error
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


async def _parsed(raw: bytes, status: int, secrets: list[str]) -> Response:
    if not 200 <= status < 300:
        # Redacted before it is cut: half a secret would not be recognised.
        text = redact(raw[:_REDACTED_BYTES].decode("utf-8", "replace"), secrets)
        raise GatewayError(f"request_failed:{status}:{printable(text[:_SHOWN])}", status)
    if len(raw) <= _PARSE_INLINE_BYTES:
        return parse_response(raw, status)
    return await asyncio.to_thread(parse_response, raw, status)


def parse_response(raw: bytes, status: int) -> Response:
    """The JSON object of a successful response; other JSON counts as an empty one.

    Raises GatewayError. Lone surrogates become U+FFFD, because they cannot be sent back.
    """
    try:
        found = json.loads(raw.decode("utf-8", "replace"), parse_constant=_no_constant)
        clean = _cleaned(found, 0)
    except RecursionError as error:
        message = f"the gateway's response is nested deeper than {MAX_DEPTH} levels"
        raise GatewayError(message, status) from error
    except ValueError as error:
        raise GatewayError("the gateway's response is not valid JSON", status) from error
    return clean if isinstance(clean, dict) else {}


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _cleaned(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise RecursionError
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [_cleaned(entry, depth + 1) for entry in value]
    if isinstance(value, dict):
        return {well_formed(key): _cleaned(entry, depth + 1) for key, entry in value.items()}
    return value

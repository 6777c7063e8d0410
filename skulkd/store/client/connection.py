"""Blocking HTTP connections to the store host, for threads; every wait has a timeout.

Uses the standard library's client: file bytes go from the socket to the disk in large pieces and
never pass through the daemon's event loop.
"""

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from skulkd.store.errors import (
    DownloadError,
    HubTimeoutError,
    StoreUnreachableError,
    UnknownModelError,
)

CONNECT_S = 10.0
JSON_S = 30.0
MAX_JSON_BYTES = 64 << 20
CONNECT_HINT = "is skulkd running on the store host, and its port open?"


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Address and token of the store host."""

    host: str
    port: int
    token: str = field(repr=False)
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls is None else 'https'}://{name}:{self.port}"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often something is tried without progress, and how long silence and pauses may be."""

    attempts: int = 5
    silence_s: float = 30.0
    first_pause_s: float = 0.5
    longest_pause_s: float = 8.0

    def pause_s(self, failures: int) -> float:
        return float(min(self.first_pause_s * 2 ** max(0, failures - 1), self.longest_pause_s))


DEFAULT_RETRY = RetryPolicy()


class StoreConnection:
    """A connection that is opened when needed, and again after an error. For one thread."""

    def __init__(self, address: StoreAddress, silence_s: float = JSON_S) -> None:
        self.address = address
        self._silence_s = silence_s
        self._connection: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._aborted = False

    def json(self, path: str, method: str = "GET") -> Any:
        """The JSON of a response. Raises StoreError."""
        response = self.request(path, method=method)
        try:
            raw = response.read(MAX_JSON_BYTES + 1)
            self.finish(response)
            return json.loads(raw) if len(raw) <= MAX_JSON_BYTES else _too_large(path)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _unreachable(self.address, error) from error
        except (ValueError, RecursionError) as error:
            raise DownloadError(f"the response of {self.address} to {path} is not JSON") from error

    def request(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        """A response whose body is not read yet. Raises StoreError for errors and timeouts."""
        sent = {"Authorization": f"Bearer {self.address.token}", "Accept-Encoding": "identity"}
        try:
            connection = self._open()
            connection.request(method, path, headers=sent | dict(headers or {}))
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _unreachable(self.address, error) from error
        if response.status < 300 or response.status == 416:
            return response
        raise self._error(path, response)

    def finish(self, response: http.client.HTTPResponse) -> None:
        """End a response; a body that was not read completely closes the connection."""
        if not response.length:
            response.read()  # only a read at the end marks the response as closed
        if not response.isclosed() or response.will_close:
            self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        with self._lock:
            connection, self._connection, self._socket = self._connection, None, None
        if connection is not None:
            connection.close()

    def abort(self) -> None:
        """From another thread: end the current request and all later ones."""
        with self._lock:
            self._aborted = True
            waiting = self._socket
        if waiting is not None:
            with suppress(OSError):
                waiting.shutdown(socket.SHUT_RDWR)

    def _open(self) -> http.client.HTTPConnection:
        if self._aborted:
            raise ConnectionAbortedError("the transfer was stopped")
        if self._connection is not None:
            return self._connection
        address = self.address
        if address.tls is None:
            connection = http.client.HTTPConnection(address.host, address.port, timeout=CONNECT_S)
        else:
            connection = http.client.HTTPSConnection(
                address.host, address.port, timeout=CONNECT_S, context=address.tls
            )
        connection.connect()
        connection.sock.settimeout(self._silence_s)
        with self._lock:
            self._connection, self._socket = connection, connection.sock
            stopped = self._aborted
        if stopped:
            raise ConnectionAbortedError("the transfer was stopped")
        return connection

    def _error(self, path: str, response: http.client.HTTPResponse) -> Exception:
        try:
            body = response.read(2000).decode("utf-8", "replace").strip()
        except (OSError, http.client.HTTPException):
            body = ""
        self.close()
        if response.status == 404:
            return UnknownModelError(body.removeprefix("404: ") or f"the store has no {path}")
        if response.status == 504:
            return HubTimeoutError(body.removeprefix("504: ") or "the store timed out")
        if response.status == 401:
            return DownloadError(
                f"{self.address} does not accept this node's cluster secret",
                hint="every node needs the same secret; see cluster.secret in skulk.yaml",
            )
        return StoreHttpError(response.status, body, self.address)


class StoreHttpError(DownloadError):
    """Any other error status."""

    def __init__(self, status: int, body: str, address: StoreAddress) -> None:
        super().__init__(f"{address} responded with {body or status}")
        self.status = status
        self.body = body


def model_path(model_id: str, *rest: str) -> str:
    """The path of a model; its id is one segment."""
    return "/".join(["/models", quote(model_id, safe=""), *(quote(part) for part in rest)])


def _unreachable(address: StoreAddress, error: Exception) -> StoreUnreachableError:
    hint = CONNECT_HINT
    if isinstance(error, http.client.RemoteDisconnected) and address.tls is None:
        hint = "it may speak TLS: set cluster.tls or api.tls on this node as on the store host"
    if isinstance(error, ssl.SSLError):
        hint = "set cluster.tls or api.tls on every node, with certificates of one authority"
    if isinstance(error, TimeoutError):
        why = "timed out"
    elif isinstance(error, OSError):
        why = (error.strerror or str(error)).lower()
    else:
        why = (
            "connection closed mid-response"
            if "read" in type(error).__name__.lower()
            else str(error)
        )
    return StoreUnreachableError(
        f"the store at {address} is unreachable: {why or type(error).__name__}",
        hint=hint,
    )


def _too_large(path: str) -> Any:
    raise DownloadError(f"the response to {path} is too large")

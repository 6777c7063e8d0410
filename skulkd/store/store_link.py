"""A connection to a store server: blocking HTTP for threads, with a limit on every wait.

The standard library's client on purpose: file bytes go from the socket to the disk in large
pieces without passing through the daemon's event loop, which has requests to answer.
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

from skulkd.store.errors import DownloadError, StoreUnreachableError, UnknownModelError

CONNECT_S = 10.0
JSON_S = 30.0
MAX_JSON_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where the store is and what opens it."""

    host: str
    port: int
    token: str = field(repr=False)
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls is None else 'https'}://{name}:{self.port}"


class StoreLink:
    """One connection that is opened when needed and again after trouble. For one thread."""

    def __init__(self, address: StoreAddress, silence_s: float = JSON_S) -> None:
        self.address = address
        self._silence_s = silence_s
        self._connection: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._closed = False

    def json(self, path: str, method: str = "GET", body: object = None) -> Any:
        """The JSON of an answer. Raises StoreError."""
        response = self.ask(path, method=method, body=body)
        try:
            raw = response.read(MAX_JSON_BYTES + 1)
            self.finish(response)
            return json.loads(raw) if len(raw) <= MAX_JSON_BYTES else _too_large(path)
        except (OSError, http.client.HTTPException) as error:
            self.drop()
            raise _unreachable(self.address, error) from error
        except (ValueError, RecursionError) as error:
            raise DownloadError(
                f"the store at {self.address} answers {path} not in JSON"
            ) from error

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: object = None,
    ) -> http.client.HTTPResponse:
        """An answer whose body is not read yet. Raises StoreError for refusals and silence."""
        sent = {"Authorization": f"Bearer {self.address.token}", "Accept-Encoding": "identity"}
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            sent["Content-Type"] = "application/json"
        try:
            connection = self._open()
            connection.request(method, path, content, sent | dict(headers or {}))
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.drop()
            raise _unreachable(self.address, error) from error
        if response.status < 300 or response.status == 416:
            return response
        raise self._refused(path, response)

    def finish(self, response: http.client.HTTPResponse) -> None:
        """The body was read as far as it is wanted; what is left of it must not be read as more."""
        if not response.length:
            response.read()  # nothing is left, but only this makes it say so
        if not response.isclosed() or response.will_close:
            self.drop()

    def drop(self) -> None:
        """Forget the connection; the next question opens another."""
        with self._lock:
            connection, self._connection, self._socket = self._connection, None, None
        if connection is not None:
            connection.close()

    def cut(self) -> None:
        """From another thread: end whatever this link waits for, now and later."""
        with self._lock:
            self._closed = True
            waiting = self._socket
        if waiting is not None:
            with suppress(OSError):
                waiting.shutdown(socket.SHUT_RDWR)

    def _open(self) -> http.client.HTTPConnection:
        if self._closed:
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
            stopped = self._closed
        if stopped:
            raise ConnectionAbortedError("the transfer was stopped")
        return connection

    def _refused(self, path: str, response: http.client.HTTPResponse) -> Exception:
        try:
            said = response.read(2000).decode("utf-8", "replace").strip()
        except (OSError, http.client.HTTPException):
            said = ""
        self.drop()
        if response.status == 404:
            return UnknownModelError(said.removeprefix("404: ") or f"the store has no {path}")
        if response.status == 401:
            return DownloadError(
                f"the store at {self.address} does not accept our cluster secret",
                hint="every node needs the same secret; see cluster.secret in skulk.yaml",
            )
        return StoreRefused(response.status, said, self.address)


class StoreRefused(DownloadError):
    """Any other answer; `status` and `said` are for callers that know what to do with them."""

    def __init__(self, status: int, said: str, address: StoreAddress) -> None:
        super().__init__(f"the store at {address} answers {said or status}")
        self.status = status
        self.said = said


def model_path(model_id: str, *rest: str) -> str:
    """The path of a model; its id is one segment."""
    return "/".join(["/models", quote(model_id, safe=""), *(quote(part) for part in rest)])


def _unreachable(address: StoreAddress, error: Exception) -> StoreUnreachableError:
    hint = "is skulkd running on the store host, and its port open?"
    if isinstance(error, http.client.RemoteDisconnected) and address.tls is None:
        hint = "it may speak TLS: set cluster.tls or api.tls on this node as on the store host"
    if isinstance(error, ssl.SSLError):
        hint = "set cluster.tls or api.tls on every node, with certificates of one authority"
    if isinstance(error, TimeoutError):
        why = "no answer in time"
    elif isinstance(error, OSError):
        why = (error.strerror or str(error)).lower()
    else:
        why = "the connection broke" if "read" in type(error).__name__.lower() else str(error)
    return StoreUnreachableError(
        f"the store at {address} cannot be used: {why or type(error).__name__}",
        hint=hint,
    )


def _too_large(path: str) -> Any:
    raise DownloadError(f"the answer to {path} is too large")

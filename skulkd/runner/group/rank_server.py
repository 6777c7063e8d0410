"""Where a rank is called by others: handshakes side by side, strangers dropped.

A connection that says nothing must not delay the ranks, so each has a thread until it has proved
itself or its time is up, and of too many the oldest is closed.
"""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from skulkd.runner.framing import FrameError
from skulkd.runner.group.rank_auth import (
    Purpose,
    RankHello,
    SealedStream,
    WrongKey,
    call,
    receive_call,
)
from skulkd.runner.group.rank_stream import Transport

_log = logging.getLogger("skulkd.runner")
HANDSHAKE_S = 10.0
MAX_PENDING = 64
_LOOK_S = 0.2
# Refusals that are logged; a flood of strangers must not fill the log.
_LOGGED_REFUSALS = 3


@dataclass(frozen=True, slots=True)
class RankCredentials:
    """What a rank needs to prove itself to the others, and to have them prove themselves."""

    key: bytes = field(repr=False)
    transport: Transport


class RankServer:
    """Hands every authenticated connection to `accept`, from a thread. Raises OSError."""

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        credentials: RankCredentials,
        called: tuple[Purpose, int],
        accept: Callable[[SealedStream], None],
    ) -> None:
        self._credentials = credentials
        self._purpose, self._rank = called
        self._accept = accept
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._pending: list[socket.socket] = []
        self._refused = 0
        self._servers: list[socket.socket] = []
        try:
            for address in addresses:
                self._servers.append(socket.create_server(address))
        except OSError:
            self._close_servers()
            raise
        self.port: int = self._servers[0].getsockname()[1]
        for server in self._servers:
            server.settimeout(_LOOK_S)
            threading.Thread(
                target=self._listen, args=(server,), name="rank-server", daemon=True
            ).start()

    def close(self) -> None:
        """No more calls. Connections that were handed over stay open."""
        self._closed.set()
        self._close_servers()
        with self._lock:
            pending, self._pending = self._pending, []
        for connection in pending:
            connection.close()

    def _close_servers(self) -> None:
        for server in self._servers:
            with contextlib.suppress(OSError):
                # Without this it would listen until the thread that waits in it looks again.
                server.shutdown(socket.SHUT_RDWR)
            server.close()

    def _listen(self, server: socket.socket) -> None:
        while not self._closed.is_set():
            try:
                connection, address = server.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            self._make_room(connection)
            threading.Thread(
                target=self._greet, args=(connection, address[0]), name="rank-call", daemon=True
            ).start()

    def _make_room(self, connection: socket.socket) -> None:
        with self._lock:
            self._pending.append(connection)
            oldest = self._pending.pop(0) if len(self._pending) > MAX_PENDING else None
        if oldest is not None:
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)

    def _greet(self, connection: socket.socket, caller: str) -> None:
        deadline = time.monotonic() + HANDSHAKE_S
        try:
            connection.settimeout(HANDSHAKE_S)
            stream = self._credentials.transport.open(connection, deadline, server_side=True)
            sealed = receive_call(
                stream, self._credentials.key, self._purpose, self._rank, deadline
            )
        except (OSError, WrongKey, FrameError) as error:
            connection.close()
            self._note_refusal(caller, error)
            sealed = None
        with self._lock:
            if connection in self._pending:
                self._pending.remove(connection)
        if sealed is not None:
            self._accept(sealed)

    def _note_refusal(self, caller: str, error: Exception) -> None:
        with self._lock:
            self._refused += 1
            logged = self._refused <= _LOGGED_REFUSALS and not self._closed.is_set()
        if logged:
            _log.warning("refused a connection from %s to rank %d: %s", caller, self._rank, error)


def dial(
    address: tuple[str, int], credentials: RankCredentials, hello: RankHello, limit_s: float
) -> SealedStream:
    """An authenticated connection to another rank. Raises OSError, WrongKey."""
    deadline = time.monotonic() + limit_s
    connection = socket.create_connection(address, max(limit_s, 0.01))
    try:
        stream = credentials.transport.open(connection, deadline, server_side=False)
        return call(stream, credentials.key, hello, deadline)
    except BaseException:
        connection.close()
        raise

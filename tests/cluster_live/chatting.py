"""A client of a live cluster that reads a streamed answer beside the test."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from skulkd.store.imports.tiny_model import TINY_MODEL_ID
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until

# More than a test will ever wait for: such an answer ends only by what the test does.
ENDLESS = 3900
_END_OF_ANSWER = "2"
_SILENCE_S = 300.0
_PIECE_BYTES = 65_536


def question(max_tokens: int = 16, **extra: Any) -> dict[str, Any]:
    """A greedy request that does not end before its length."""
    return {
        "model": TINY_MODEL_ID,
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "logit_bias": {_END_OF_ANSWER: -100},
        **extra,
    }


@dataclass
class Answer:
    """Lines of a stream with the moments of their arrival; the thread ends with the stream.

    A body with `stream` False is for an answer that comes whole.
    """

    node: LiveNode
    body: dict[str, Any]
    port: int = 0
    """Of the start that is asked; a restart of the node may change it."""
    authorization: dict[str, str] = field(default_factory=dict)
    """The header, where a token is to be shown."""
    lines: list[tuple[float, str]] = field(default_factory=list)
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    """Names in lower case."""
    broken: str | None = None
    """How the connection ended, when that was not a proper end."""
    ended_at: float | None = None
    _thread: threading.Thread | None = None
    _socket: socket.socket | None = None

    def begin(self) -> Answer:
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    @property
    def frames(self) -> list[dict[str, Any]]:
        return [json.loads(line[6:]) for _, line in list(self.lines) if line.startswith("data: {")]

    @property
    def tokens(self) -> int:
        return sum("choices" in frame for frame in self.frames)

    @property
    def text(self) -> str:
        return "".join(
            choice["delta"].get("content") or ""
            for frame in self.frames
            for choice in frame.get("choices", [])
        )

    @property
    def error(self) -> dict[str, Any] | None:
        return next((frame["error"] for frame in self.frames if "error" in frame), None)

    @property
    def command_id(self) -> str | None:
        mark = ": command_id "
        found = (line for _, line in list(self.lines) if line.startswith(mark))
        return next((line.removeprefix(mark) for line in found), None)

    @property
    def done(self) -> bool:
        return self._thread is not None and not self._thread.is_alive()

    @property
    def succeeded(self) -> bool:
        """Whether everything came, streamed or whole."""
        if self.broken is not None or self.status != 200 or self.error is not None:
            return False
        return self.finished or self.body.get("stream") is False

    @property
    def finished(self) -> bool:
        return any(line == "data: [DONE]" for _, line in list(self.lines))

    def wait_tokens(self, count: int, deadline_s: float = 300.0) -> None:
        """Until so many pieces have come."""
        wait_until(lambda: self.tokens >= count or self.done, f"{count} tokens", deadline_s)
        assert self.tokens >= count, self.end_text()

    def wait_more(self, deadline_s: float = 300.0) -> None:
        """Until something has come that was not there before."""
        self.wait_tokens(self.tokens + 5, deadline_s)

    def wait_end(self, deadline_s: float = 300.0) -> None:
        wait_until(lambda: self.done, "the end of the answer", deadline_s)

    def hang_up(self) -> None:
        assert self._socket is not None, "nothing was asked yet"
        # Closing alone would leave it open for the thread that reads. One that ended is closed.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def end_text(self) -> str:
        last = [line for _, line in self.lines[-3:]]
        return f"status {self.status}, broken {self.broken}, last lines {last}"

    def _read(self) -> None:
        try:
            if self.node.machine is not None:
                self.node.machine.enter()
            self._talk()
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.broken = f"{type(error).__name__}: {error}"
        finally:
            self.ended_at = time.monotonic()

    def _talk(self) -> None:
        port = self.port or self.node.port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_SILENCE_S)
        try:
            connection.request(
                "POST",
                "/v1/chat/completions",
                json.dumps({"stream": True, **self.body}),
                {"Content-Type": "application/json", **self.authorization},
            )
            # An answer that ends with the connection takes the socket away from it.
            self._socket = connection.sock
            response = connection.getresponse()
            self.status = response.status
            self.headers = {key.lower(): value for key, value in response.getheaders()}
            self._read_lines(response)
        finally:
            connection.close()

    def _read_lines(self, response: http.client.HTTPResponse) -> None:
        """Raises IncompleteRead when the end is missing; iterating would take that for an end."""
        rest = b""
        while piece := response.read1(_PIECE_BYTES):
            *whole, rest = (rest + piece).split(b"\n")
            self.lines += [(time.monotonic(), line.decode()) for line in whole]
        if rest:
            self.lines.append((time.monotonic(), rest.decode()))
        if response.length:
            raise http.client.IncompleteRead(rest, response.length)


def stream(node: LiveNode, max_tokens: int = ENDLESS, **extra: Any) -> Answer:
    """Ask that node; the answer is read as it comes."""
    return Answer(node, question(max_tokens, **extra)).begin()

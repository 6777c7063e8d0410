"""A real daemon with the tiny model placed on it, and clients for it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from skulkd.store.imports.tiny_model import TINY_MODEL_ID, make_tiny_model
from tests.daemon_process import DaemonProcess, spawn_daemon, wait_until

T = TypeVar("T")
DEADLINE_S = 300.0
# Eager computing is slower in the long run and much faster to begin with.
ENVIRON = {"MLX_DISABLE_COMPILE": "1"}
END_OF_ANSWER = "2"
SERVING = ({"RunnerReady": {}}, {"RunnerRunning": {}})


@dataclass(frozen=True)
class Streamed:
    """A whole stream, taken apart."""

    status: int
    text: str

    @property
    def frames(self) -> list[str]:
        return [frame for frame in self.text.split("\n\n") if frame]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(f[6:]) for f in self.frames if f.startswith("data: {")]

    @property
    def command_id(self) -> str:
        return self.frames[1].removeprefix(": command_id ")

    @property
    def error(self) -> dict[str, Any] | None:
        return next((body["error"] for body in self.bodies if "error" in body), None)

    @property
    def done(self) -> bool:
        return self.text.endswith("data: [DONE]\n\n")

    def content(self, choice: int = 0) -> str:
        return "".join(
            part["delta"]["content"] or ""
            for body in self.bodies
            for part in body.get("choices", [])
            if part["index"] == choice
        )

    def finish_reason(self, choice: int = 0) -> str | None:
        reasons = [
            part["finish_reason"]
            for body in self.bodies
            for part in body.get("choices", [])
            if part["index"] == choice
        ]
        return reasons[-1] if reasons else None


class Served:
    """The daemon as its clients see it."""

    model = TINY_MODEL_ID

    def __init__(self, daemon: DaemonProcess) -> None:
        self.daemon = daemon
        # No TLS to prepare, no proxy to look for, as many connections as a test wants.
        self.client = httpx.Client(
            base_url=daemon.url,
            timeout=DEADLINE_S,
            transport=httpx.HTTPTransport(verify=False, limits=httpx.Limits()),
        )

    def end(self) -> None:
        self.client.close()
        self.daemon.kill()

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        return self.client.post(path, json=body)

    def get(self, path: str) -> httpx.Response:
        return self.client.get(path)

    def delete(self, path: str) -> httpx.Response:
        return self.client.delete(path)

    def body(self, content: str = "hello", **extra: Any) -> dict[str, Any]:
        """A greedy request that does not end before its length."""
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": 24,
            "temperature": 0,
            "logit_bias": {END_OF_ANSWER: -100},
            **extra,
        }

    def chat(self, content: str = "hello", **extra: Any) -> dict[str, Any]:
        """The body of a good answer."""
        answer = self.post("/v1/chat/completions", self.body(content, **extra))
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def refusal(self, content: str = "hello", **extra: Any) -> dict[str, Any]:
        """The error of a bad one; a busy runner may refuse when a stream has begun already."""
        answer = self.post("/v1/chat/completions", self.body(content, **extra))
        if answer.status_code == 200:
            error = Streamed(200, answer.text).error
            assert error is not None
            return error
        error = answer.json()["error"]
        assert error is not None
        assert error["code"] == answer.status_code
        return error

    def stream(self, content: str = "hello", **extra: Any) -> Streamed:
        """A stream, read to its end."""
        body = self.body(content, stream=True, **extra)
        answer = self.post("/v1/chat/completions", body)
        return Streamed(answer.status_code, answer.text)

    def lines(self, content: str = "hello", **extra: Any) -> Generator[str]:
        """Lines of a stream as they come; closing the iterator hangs up."""
        body = self.body(content, stream=True, **extra)
        with self.client.stream("POST", "/v1/chat/completions", json=body) as got:
            yield from got.iter_lines()

    def place(self, model: str | None = None) -> str:
        """The id of an instance that serves, of the tiny model unless another is named."""
        placed = self.post("/place_instance", {"model_id": model or self.model})
        assert placed.status_code == 200, placed.text
        instance_id: str = placed.json()["instance_id"]
        self.wait_serving(instance_id)
        return instance_id

    def wait_serving(self, instance_id: str) -> None:
        def serves() -> bool:
            state = self.daemon.get("/state")
            instance = state["instances"][instance_id]["MlxRingInstance"]
            runners = instance["shardAssignments"]["runnerToShard"]
            return all(state["runners"].get(runner) in SERVING for runner in runners)

        wait_until(serves, "the instance to serve", DEADLINE_S)

    def records(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.daemon.get("/v1/diagnostics/node")["supervisorRunners"]
        return found

    def wait_idle(self) -> None:
        """Until no runner has a request."""

        def idle() -> bool:
            return all(not record["inProgressTasks"] for record in self.records())

        wait_until(idle, "all requests to end", DEADLINE_S)

    def runner_pid(self) -> int:
        [pid] = [record["pid"] for record in self.records()]
        return int(pid)

    def kill_runner(self) -> None:
        os.kill(self.runner_pid(), signal.SIGKILL)


def serve(home: Path, environ: Mapping[str, str] | None = None) -> Served:
    """A daemon whose models directory has the tiny model."""
    make_tiny_model(home / "models")
    daemon = spawn_daemon(home, environ={**ENVIRON, **(environ or {})})
    daemon.wait_ready()
    return Served(daemon)


def together(count: int, work: Callable[[int], T]) -> list[T]:
    """The results of so many clients at the same time."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))

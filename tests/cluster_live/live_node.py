"""One real daemon of a live cluster: its process, its home, and questions to its API."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.cluster_live.lan import Machine
from tests.daemon_process import DaemonProcess, spawn_daemon
from tests.skulkctl_process import Result, skulkctl

T = TypeVar("T")
ASK_S = 300.0
# Eager computing is slower in the long run and much faster to begin with.
ENVIRON = {"MLX_DISABLE_COMPILE": "1"}


@dataclass
class Reply:
    """An answer of the API."""

    status: int
    headers: Mapping[str, str]
    body: Any


@dataclass
class LiveNode:
    """A node that can be started, killed, frozen and started again in the same home.

    `machine` is the namespace it runs in; None is this machine, on loopback.
    """

    name: str
    home: Path
    fabric: str
    """HOST:PORT that other nodes call."""
    peers: Sequence[str] = ()
    arguments: Sequence[str] = ()
    machine: Machine | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    module: str = "skulkd"
    """What is run with `python -m`."""
    process: DaemonProcess | None = None
    starts: int = 0
    earlier: list[str] = field(default_factory=list)
    """What the daemons of earlier starts have said."""

    @property
    def daemon(self) -> DaemonProcess:
        assert self.process is not None, f"{self.name} was never started"
        return self.process

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.process.poll() is None

    def said(self) -> list[str]:
        """Everything, of all starts."""
        return [*self.earlier, *(self.process.stderr if self.process is not None else ())]

    @property
    def node_id(self) -> str:
        return self.daemon.node_id

    @property
    def pid(self) -> int:
        return self.daemon.pid

    # --- life ---

    def start(self) -> None:
        """Begin to start; `wait_ready` waits for it."""
        if self.process is not None:
            self.process.kill()  # what was left of the last start
            self.earlier += self.process.stderr
        peers = [word for peer in self.peers for word in ("--peer", peer)]
        listen = "127.0.0.1:0" if self.machine is None else "0.0.0.0:52415"
        self.process = spawn_daemon(
            self.home,
            *("--name", self.name, "--fabric-listen", self.fabric, *peers, *self.arguments),
            environ={**ENVIRON, **self.environ},
            listen=listen,
            enter=None if self.machine is None else self.machine.enter,
            module=self.module,
        )
        self.starts += 1

    def wait_ready(self) -> None:
        self.daemon.wait_ready()

    def kill(self) -> None:
        """SIGKILL, as by the power switch: no goodbye to anybody."""
        self.daemon.process.kill()
        self.daemon.process.wait(300)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        return self.daemon.stop()

    def clean_up(self) -> None:
        if self.process is not None:
            if self.alive:
                self.thaw()
            self.process.kill()

    # --- questions ---

    @property
    def port(self) -> int:
        return self.daemon.port if self.machine is None else 52415

    def inside(self, work: Callable[[], T]) -> T:
        """Do it with this node's network."""
        return work() if self.machine is None else self.machine.run(work)

    def ask(self, method: str, path: str, body: object = None, timeout_s: float = ASK_S) -> Reply:
        """Raises OSError when nobody answers."""

        def talk() -> Reply:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
            try:
                payload = None if body is None else json.dumps(body)
                connection.request(method, path, payload, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                text = answer.read().decode()
                headers = {key.lower(): value for key, value in answer.getheaders()}
                if headers.get("content-type") == "application/x-ndjson":
                    return Reply(answer.status, headers, [*map(json.loads, text.splitlines())])
                return Reply(answer.status, headers, json.loads(text) if text else None)
            finally:
                connection.close()

        return self.inside(talk)

    def get(self, path: str, timeout_s: float = ASK_S) -> Any:
        """The body of a 200."""
        reply = self.ask("GET", path, timeout_s=timeout_s)
        assert reply.status == 200, reply
        return reply.body

    def post(self, path: str, body: object = None) -> Reply:
        return self.ask("POST", path, body)

    def skulkctl(self, *arguments: str) -> Result:
        """Run it against this node, as an operator with a home of their own."""
        return skulkctl(
            *arguments,
            home=self.home / "cli",
            endpoint=f"127.0.0.1:{self.port}",
            preexec_fn=None if self.machine is None else self.machine.enter,
        )

    def state(self) -> Any:
        return self.get("/state")

    def view(self) -> Any:
        """`/v1/cluster`."""
        return self.get("/v1/cluster")

    def runner_pids(self) -> list[int]:
        """Of the runners that live here."""
        records = self.get("/v1/diagnostics/node")["supervisorRunners"]
        return [record["pid"] for record in records if record["processAlive"]]

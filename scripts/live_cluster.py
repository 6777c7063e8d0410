"""Throw-away clusters on loopback for the demo and the pictures: real daemons, one secret."""

from __future__ import annotations

import json
import random
import secrets
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

from live_daemon import STOP_DEADLINE_S, LiveDaemon, live_daemon

FORM_DEADLINE_S = 60.0
# Below the range from which systems take ports for outgoing connections.
_PORTS = (20_000, 32_000)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses and nobody gets by chance."""
    while True:
        port = random.randrange(*_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def cluster_config(own: int, others: Sequence[int], secret: str) -> str:
    """The settings that make daemons on loopback one cluster."""
    cluster = {
        "secret": secret,
        "namespace": "demo",
        "listen": f"127.0.0.1:{own}",
        "peers": [f"127.0.0.1:{other}" for other in others],
    }
    return f"cluster: {json.dumps(cluster)}\n"


def start_cluster(
    stack: ExitStack, names: Sequence[str], env: Mapping[str, str]
) -> list[LiveDaemon]:
    """Daemons that call each other; they end with the stack."""
    ports, secret = [free_port() for _ in names], secrets.token_hex(16)
    starting = [
        live_daemon(name, env, cluster_config(own, [p for p in ports if p != own], secret))
        for name, own in zip(names, ports, strict=True)
    ]
    with ThreadPoolExecutor() as pool:
        return list(pool.map(stack.enter_context, starting))


def wait_formed(daemons: Sequence[LiveDaemon]) -> float:
    """Until each has found the others and measured a way to one; the seconds it took."""
    began = time.monotonic()
    while time.monotonic() - began < FORM_DEADLINE_S:
        if all(_links(daemon) == len(daemons) for daemon in daemons):
            return time.monotonic() - began
        time.sleep(0.05)
    said = [line for daemon in daemons for line in daemon.said[-5:]]
    raise SystemExit("error: the daemons did not form a cluster:\n  " + "\n  ".join(said))


def _links(daemon: LiveDaemon) -> int:
    """How many nodes reach another one, as this daemon sees it."""
    try:
        with urllib.request.urlopen(f"{daemon.url}/state", timeout=5) as answer:
            state = json.load(answer)
    except (urllib.error.URLError, OSError):
        return 0
    return sum(bool(sinks) for sinks in state["topology"]["connections"].values())


def stop(daemons: Sequence[LiveDaemon]) -> list[int]:
    """Ask all of them to stop; their exit codes."""
    for daemon in daemons:
        daemon.process.terminate()
    return [daemon.process.wait(STOP_DEADLINE_S) for daemon in daemons]

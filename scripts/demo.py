"""`make demo`: two real daemons on loopback share a real model and answer a question.

Everything an operator would type is shown as it is typed; nothing is simulated. Two daemons on
one machine are slower than one, because they share its cores; what is shown is that they work
together.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

from live_daemon import STOP_DEADLINE_S, LiveDaemon, live_daemon

MODEL = "skulk/SmolLM2-135M-Instruct"
FALL_BACK = "skulk/tiny-llama"
QUESTION = "What is the capital of France?"
NAMES = ("kite1", "kite2")
FORM_DEADLINE_S = 60.0
CHECK_FOUND_SOMETHING = 7  # `doctor` doing its job on a machine with a problem
# Below the range from which systems take ports for outgoing connections.
_PORTS = (20_000, 32_000)


def say(text: str = "") -> None:
    print(text, flush=True)


def show(env: dict[str, str], *arguments: str) -> int:
    """Run one skulkctl command, echoed as a person would type it."""
    say(f"$ skulkctl {shlex.join(arguments)}")
    done = subprocess.run([sys.executable, "-m", "skulkctl", *arguments], env=env, check=False)
    say()
    return done.returncode


def get_model(env: dict[str, str]) -> str:
    """A language model in the models directory; a generated one when none can be fetched."""
    if show(env, "model", "pull", "demo") == 0:
        return MODEL
    say("The demo model cannot be fetched here, so a tiny generated one takes its place.")
    say("It speaks no language: expect noise instead of an answer.\n")
    if show(env, "model", "pull", "tiny"):
        raise SystemExit("error: no model for the demo")
    return FALL_BACK


def tour(daemon: LiveDaemon, model: str) -> list[str]:
    """What an operator would look at; the commands that failed."""
    commands: list[tuple[str, ...]] = [
        ("status",),
        ("preview", model),
        ("place", model, "--min-nodes", "2", "--wait"),
        ("doctor", "--expect-nodes", "2"),
        ("instances", "-o", "wide"),
        ("chat", model, QUESTION, "--temperature", "0", "--max-tokens", "24"),
        ("probe", model),
        ("timeline", "--once"),
        ("delete", model, "--yes", "--wait"),
    ]
    return [
        " ".join(command)
        for command in commands
        if show(daemon.env, *command) not in (0, CHECK_FOUND_SOMETHING)
    ]


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses and nobody gets by chance."""
    while True:
        port = random.randrange(*_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def cluster_config(own: int, other: int, secret: str) -> str:
    """The settings that make two daemons on loopback one cluster."""
    cluster = {
        "secret": secret,
        "namespace": "demo",
        "listen": f"127.0.0.1:{own}",
        "peers": [f"127.0.0.1:{other}"],
    }
    return f"cluster: {json.dumps(cluster)}\n"


def start_both(stack: ExitStack, env: dict[str, str]) -> list[LiveDaemon]:
    """Two daemons that call each other."""
    ports, secret = (free_port(), free_port()), secrets.token_hex(16)
    starting = [
        live_daemon(name, env, cluster_config(ports[index], ports[1 - index], secret))
        for index, name in enumerate(NAMES)
    ]
    with ThreadPoolExecutor() as pool:
        daemons = list(pool.map(stack.enter_context, starting))
    for name, daemon in zip(NAMES, daemons, strict=True):
        say(f"{name}: skulkd answers at {daemon.url} after {daemon.ready_after_s:.1f} s")
    return daemons


def wait_formed(daemons: list[LiveDaemon]) -> float:
    """Until each has found the other and measured a way to it; the seconds it took."""
    began = time.monotonic()
    while time.monotonic() - began < FORM_DEADLINE_S:
        if all(_links(daemon) == len(daemons) for daemon in daemons):
            return time.monotonic() - began
        time.sleep(0.2)
    said = [line for daemon in daemons for line in daemon.said[-5:]]
    raise SystemExit("error: the two daemons did not form a cluster:\n  " + "\n  ".join(said))


def _links(daemon: LiveDaemon) -> int:
    """How many nodes reach another one, as this daemon sees it."""
    try:
        with urllib.request.urlopen(f"{daemon.url}/state", timeout=5) as answer:
            state = json.load(answer)
    except (urllib.error.URLError, OSError):
        return 0
    return sum(bool(sinks) for sinks in state["topology"]["connections"].values())


def stop(daemons: list[LiveDaemon]) -> list[int]:
    """Ask both to stop; their exit codes."""
    for daemon in daemons:
        daemon.process.terminate()
    return [daemon.process.wait(STOP_DEADLINE_S) for daemon in daemons]


def main() -> int:
    began = time.monotonic()
    # Beside the environment, so that the model is fetched once and `make clean` removes it.
    env = {"SKULK_MODELS_DIR": str(Path(sys.prefix) / "demo-models")}
    with ExitStack() as stack:
        daemons = start_both(stack, env)
        say(f"one cluster of two nodes after {wait_formed(daemons):.1f} s\n")
        failed = tour(daemons[0], get_model(daemons[0].env))
        codes = stop(daemons)
    say(f"Both daemons stopped, exit codes {codes}; their files are gone, the model stays.")
    say(f"The demo took {time.monotonic() - began:.0f} s.")
    if failed or any(codes):
        print(f"error: the demo failed: {', '.join(failed) or 'skulkd'}", file=sys.stderr)
        return 1
    programs = os.path.relpath(Path(sys.executable).parent)
    say(f"\nNow with your own:\n  {programs}/skulkd run\n  {programs}/skulkctl status")
    return 0


if __name__ == "__main__":
    sys.exit(main())

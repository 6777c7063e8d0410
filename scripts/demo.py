"""`make demo`: two real daemons on loopback share a real model and answer a question.

Everything an operator would type is shown as it is typed; nothing is simulated. Two daemons on
one machine are slower than one, because they share its cores; what is shown is that they work
together.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from live_cluster import start_cluster, stop, wait_formed
from live_daemon import LiveDaemon

MODEL = "skulk/SmolLM2-135M-Instruct"
FALL_BACK = "skulk/tiny-llama"
QUESTION = "What is the capital of France?"
NAMES = ("kite1", "kite2")
CHECK_FOUND_SOMETHING = 7  # `doctor` doing its job on a machine with a problem


def say(text: str = "") -> None:
    print(text, flush=True)


def show(env: dict[str, str], *arguments: str) -> int:
    """Run one skulkctl command, echoed as a person would type it."""
    say(f"$ skulkctl {shlex.join(arguments)}")
    done = subprocess.run([sys.executable, "-m", "skulkctl", *arguments], env=env, check=False)
    say()
    return done.returncode


def get_model(env: dict[str, str]) -> tuple[str, str]:
    """A language model in the models directory, and what to show of how it came there.

    It needs no daemon, so it runs while they start. When the model cannot be fetched, a generated
    one takes its place.
    """
    shown = ""
    for source, model in (("demo", MODEL), ("tiny", FALL_BACK)):
        arguments = ("model", "pull", source, "--here")
        command = [sys.executable, "-m", "skulkctl", *arguments]
        done = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
        shown += f"$ skulkctl {shlex.join(arguments)}\n{done.stdout}{done.stderr}\n"
        if done.returncode == 0:
            return model, shown
        if source == "demo":
            shown += "The demo model cannot be fetched here, so a tiny generated one is used.\n"
            shown += "It speaks no language: expect noise instead of an answer.\n\n"
    raise SystemExit(f"{shown}error: no model for the demo")


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


def main() -> int:
    began = time.monotonic()
    # Beside the environment, so that the model is fetched once and `make clean` removes it.
    env = {"SKULK_MODELS_DIR": str(Path(sys.prefix) / "demo-models")}
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        fetching = pool.submit(get_model, os.environ | env)
        daemons = start_cluster(stack, NAMES, env)
        for name, daemon in zip(NAMES, daemons, strict=True):
            say(f"{name}: skulkd answers at {daemon.url} after {daemon.ready_after_s:.1f} s")
        say(f"one cluster of two nodes after {wait_formed(daemons):.1f} s\n")
        model, shown = fetching.result()
        say(shown.rstrip("\n") + "\n")
        failed = tour(daemons[0], model)
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

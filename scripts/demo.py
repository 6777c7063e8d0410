"""`make demo`: a real model behind a real daemon, looked at the way an operator would."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from live_daemon import STOP_DEADLINE_S, LiveDaemon, live_daemon

MODEL = "skulk/SmolLM2-135M-Instruct"
FALL_BACK = "skulk/tiny-llama"
QUESTION = "What is the capital of France?"
CHECK_FOUND_SOMETHING = 7  # `doctor` doing its job on a machine with a problem


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
        ("doctor",),
        ("place", model, "--wait"),
        ("chat", model, QUESTION, "--temperature", "0", "--max-tokens", "24"),
        ("instances",),
        ("probe", model),
        ("diagnose",),
    ]
    return [
        " ".join(command)
        for command in commands
        if show(daemon.env, *command) not in (0, CHECK_FOUND_SOMETHING)
    ]


def main() -> int:
    # Beside the environment, so that the model is fetched once and `make clean` removes it.
    models = Path(sys.prefix) / "demo-models"
    with live_daemon(env={"SKULK_MODELS_DIR": str(models)}) as daemon:
        say(f"skulkd answers at {daemon.url}, {daemon.ready_after_s:.1f} s after it was started\n")
        failed = tour(daemon, get_model(daemon.env))
        daemon.process.terminate()
        code = daemon.process.wait(STOP_DEADLINE_S)
    say(f"skulkd stopped with exit code {code}; its files are gone, the model stays for next time.")
    if failed or code:
        print(f"error: the demo failed: {', '.join(failed) or 'skulkd'}", file=sys.stderr)
        return 1
    programs = os.path.relpath(Path(sys.executable).parent)
    say(f"\nNow with your own:\n  {programs}/skulkd run\n  {programs}/skulkctl status")
    return 0


if __name__ == "__main__":
    sys.exit(main())

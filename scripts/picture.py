"""`make picture`: the pictures of the README and the docs, taken from real daemons.

Three daemons share a small model; a rank of it stops on purpose (`SKULK_FAULTS`). Commands are run
as on a terminal, the application is driven by its keys. Look at every picture before committing it.
"""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, chdir
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from live_cluster import start_cluster, wait_formed
from live_daemon import LiveDaemon
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text
from terminal_svg import moving, still

NAMES = ("kite1", "kite2", "kite3")
MODEL = "skulk/tiny-llama"
IMAGES = Path(__file__).parents[1] / "docs/images"
COLUMNS = 100
SCREEN = (120, 34)
HANG_AFTER_S = 10.0
FAULTS = "stall_step@1:55"
"""Rank 1 stops in its third step, longer than it takes to find and cancel it."""
DEADLINE_S = 300.0
# The colours of the application's dark theme.
THEME = TerminalTheme(
    (15, 19, 24), (217, 223, 231),
    [(29, 37, 46), (244, 99, 58), (47, 191, 147), (230, 159, 0), (86, 180, 233), (204, 121, 167),
     (86, 180, 233), (217, 223, 231)],
)  # fmt: skip
COMMANDS = {"status": [["status"]], "storage": [["storage", "--all-nodes"]]}


def run(daemon: LiveDaemon, *arguments: str) -> str:
    """What the command prints on a terminal, colours included."""
    done = subprocess.run(
        [sys.executable, "-m", "skulkctl", *arguments],
        env=daemon.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 7):
        raise SystemExit(f"error: skulkctl {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def on_terminal(daemon: LiveDaemon, arguments: list[str]) -> str:
    """The same on a terminal of its own, so that tables are drawn as people see them."""
    import pty

    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "skulkctl", *arguments],
        env=daemon.env | {"COLUMNS": str(COLUMNS), "LINES": "40", "TERM": "xterm-256color"},
        stdin=slave, stdout=slave, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    said = b""
    while piece := _read(master):
        said += piece
    process.wait()
    os.close(master)
    return said.decode().replace("\r\n", "\n")


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # how Linux says that the other end of a terminal was closed
        return b""


def command_picture(daemon: LiveDaemon, commands: list[list[str]]) -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for arguments in commands:
        console.print(Text.assemble(("$ ", "bold green"), f"skulkctl {' '.join(arguments)}"))
        console.print(Text.from_ansi(on_terminal(daemon, arguments).rstrip("\n")))
    return still(console.export_svg(title="", theme=THEME), f"skulkctl {' '.join(commands[0])}")


class Film:
    """Frames of the application, while somebody uses it."""

    def __init__(self, app: Any, pilot: Any) -> None:
        self.app, self.pilot = app, pilot
        self.frames: list[str] = []
        self.seconds: list[float] = []

    def take(self, seconds: float) -> str:
        """The present screen as the next frame."""
        svg: str = self.app.export_screenshot()
        self.frames.append(svg)
        self.seconds.append(seconds)
        return svg

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not condition():
                    await self.pilot.pause(0.25)
        except TimeoutError:
            raise SystemExit(f"error: waited in vain for {what}") from None

    async def film_until(self, condition: Callable[[], bool], what: str, every_s: float) -> None:
        """Frames at intervals until something is on the screen."""

        async def filming() -> None:
            while True:
                await self.pilot.pause(every_s)
                self.take(0.8)

        camera = asyncio.ensure_future(filming())
        await self.until(condition, what)
        camera.cancel()


async def film_hang(daemon: LiveDaemon) -> tuple[str, str]:
    """The timeline of a hang, and the whole story: found, captured and ended."""
    from skulkctl.contexts import Context, Target
    from skulkctl.daemon.client import AsyncDaemon
    from skulkctl.timeline.frames import ClusterWatch
    from skulkctl.ui.actions import Actions, Reader
    from skulkctl.ui.app import Setup, SkulkApp
    from skulkctl.ui.feed import LiveFeed
    from skulkctl.verdict import Limits

    client = AsyncDaemon(Target(Context("lab", (daemon.url,))))
    limits = Limits(hang_s=HANG_AFTER_S, straggler_s=2 * HANG_AFTER_S)
    setup = Setup(
        LiveFeed(client, ClusterWatch()), Actions(client, Path()), Reader(client), context="lab",
        mode="timeline", limits=limits, every_s=1.0,
    )  # fmt: skip
    app = SkulkApp(setup)

    def state() -> str:
        return "" if app.snapshot is None else str(app.snapshot.verdict.worst.state)

    async with app.run_test(size=SCREEN, notifications=True) as pilot:
        film = Film(app, pilot)
        await film.until(lambda: app.snapshot is not None and bool(app.snapshot.groups), "ranks")
        film.take(1.5)
        chat = await _chat(daemon)
        try:
            await film.film_until(lambda: state() == "HANG", "the hang", 2.0)
            await pilot.pause(2.0)
            film.take(3.0)
            app.clear_notifications()
            await pilot.pause(0.5)
            hang: str = app.export_screenshot()
            await pilot.press("c")
            await film.until(lambda: any(Path().glob("*.tar.zst")), "the capture")
            await pilot.pause(0.5)
            film.take(2.0)
            await pilot.press("x")
            await pilot.pause(0.5)
            film.take(2.0)
            await pilot.press("y")
            await film.film_until(lambda: state() in ("OK", "RECOVERED"), "the end", 4.0)
            await pilot.pause(1.0)
            film.take(3.0)
        finally:
            if chat.returncode is None:
                chat.kill()
            await chat.wait()
    return hang, moving(film.frames, film.seconds, "skulkctl timeline")


async def _chat(daemon: LiveDaemon) -> asyncio.subprocess.Process:
    """A request that will hang."""
    command = [sys.executable, "-m", "skulkctl", "chat", MODEL, "hello", "--max-tokens", "400"]
    nowhere = asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        *command, env=daemon.env, stdin=nowhere, stdout=nowhere, stderr=nowhere
    )


def save(name: str, svg: str) -> None:
    target = IMAGES / f"{name}.svg"
    target.write_text(svg, encoding="utf-8")
    print(f"wrote {target.name}, {len(svg) // 1024} KiB", flush=True)


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    os.environ.pop("NO_COLOR", None)
    with tempfile.TemporaryDirectory(prefix="skulk-") as folder, ExitStack() as stack:
        env = {"SKULK_FAULTS": FAULTS, "SKULK_MODELS_DIR": f"{folder}/models"}
        daemons = start_cluster(stack, NAMES, env)
        wait_formed(daemons)
        first = daemons[0]
        run(first, "model", "pull", "tiny", "--here")
        run(first, "place", MODEL, "--min-nodes", "3", "--wait")
        for name, commands in COMMANDS.items():
            save(name, command_picture(first, commands))
        captures = Path(folder) / "captures"
        captures.mkdir()
        # Paths on the screen are then relative.
        with chdir(captures):
            hang, story = asyncio.run(film_hang(first))
        save("timeline", still(hang, "skulkctl timeline"))
        save("hang", story)


if __name__ == "__main__":
    main()

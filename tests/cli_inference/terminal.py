"""A program on a terminal of its own: type at it, wait for what it shows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping

from tests.skulkctl_process import start_skulkctl

DEADLINE_S = 300.0
PATIENCE_S = 3.0
CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal:
    """The leading end of a pseudo terminal and the program behind it."""

    def __init__(self, child: subprocess.Popen[bytes], leader: int) -> None:
        self.child = child
        self._leader = leader
        self.shown = ""
        self._read = 0
        self._key = ""

    def expect(self, text: str) -> str:
        """Wait until the text appears after what was waited for last; all that came with it."""
        end = time.monotonic() + DEADLINE_S
        while text not in self.shown[self._read :]:
            if time.monotonic() > end or not self._more():
                raise AssertionError(f"waited in vain for {text!r} after: {self.shown!r}")
        start = self._read
        self._read = self.shown.index(text, start) + len(text)
        return self.shown[start : self._read]

    def type(self, text: str) -> None:
        self._key = text[-1:] if text[-1:] in (CTRL_C, CTRL_D) else ""
        os.write(self._leader, text.encode())

    def leave(self) -> int:
        """Read what is left; the exit code."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end and self._more():
            pass
        return self.child.wait(DEADLINE_S)

    def _more(self) -> bool:
        """Read what comes next; whether there may be more. Nothing new is no end."""
        ready, _, _ = select.select([self._leader], [], [], PATIENCE_S)
        if not ready:
            # Between the prompt and the moment the line editor listens such a key is lost, for
            # people as well; they press it again.
            if self._key and self.child.poll() is None:
                os.write(self._leader, self._key.encode())
            return True
        # Reading fails, instead of ending, when the last user of the terminal has gone.
        with contextlib.suppress(OSError):
            piece = os.read(self._leader, 4096)
            self.shown += piece.decode("utf-8", "replace").replace("\r\n", "\n")
            return bool(piece)
        return False


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def terminal(*arguments: str, environ: Mapping[str, str] | None = None) -> Iterator[Terminal]:
    """Run skulkctl on a terminal, where ctrl-C and ctrl-D mean what they mean to people."""
    leader, follower = pty.openpty()

    child = start_skulkctl(
        *arguments,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, **(environ or {})},
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(follower)
    try:
        yield Terminal(child, leader)
    finally:
        child.kill()
        child.wait(DEADLINE_S)
        os.close(leader)

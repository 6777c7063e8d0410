"""The daemon's side of the zygote: start it, ask for runners, hear when they end. No MLX."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Mapping
from itertools import count
from typing import Any

_START_S = 60.0
_FORK_S = 5.0
_MAX_PACKET_BYTES = 256 * 1024


class ZygoteError(Exception):
    """No runner came of it; start one as an ordinary process instead."""


class Zygote:
    """Only for Linux; see `supported`. All methods belong to one event loop."""

    def __init__(self, control: socket.socket, process: asyncio.subprocess.Process) -> None:
        self._control = control
        self._process = process
        self._numbers = count(1)
        self._ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._answers: dict[int, asyncio.Future[int]] = {}
        self._ends: dict[int, asyncio.Future[int]] = {}
        self._closed = False

    @staticmethod
    def supported() -> bool:
        return sys.platform == "linux"

    @classmethod
    async def start(cls, environ: Mapping[str, str] | None = None) -> "Zygote":
        """Start and wait until it has imported everything. Raises ZygoteError.

        What must be set before MLX is loaded, like a preloaded BLAS, belongs into `environ`.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "skulkd.runner.zygote",
                    "--fd",
                    str(theirs.fileno()),
                    pass_fds=[theirs.fileno()],
                    stdin=asyncio.subprocess.DEVNULL,
                    env=dict(environ) if environ is not None else None,
                )
        except OSError as error:
            ours.close()
            raise ZygoteError(f"the zygote cannot be started: {error}") from error
        ours.setblocking(False)
        zygote = cls(ours, process)
        asyncio.get_running_loop().add_reader(ours, zygote._readable)
        try:
            async with asyncio.timeout(_START_S):
                await zygote._ready
        except (TimeoutError, ZygoteError) as error:
            await zygote.close()
            raise ZygoteError(f"the zygote did not start: {error or 'no answer'}") from error
        except asyncio.CancelledError:
            # Whoever wanted it is leaving; half a zygote would be nobody's.
            await zygote.close()
            raise
        return zygote

    async def fork(self, in_fd: int, out_fd: int, log_fd: int, environ: Mapping[str, str]) -> int:
        """The process id of a new runner on these descriptors, which stay the caller's.

        Raises ZygoteError.
        """
        if self._closed:
            raise ZygoteError("the zygote is gone")
        number = next(self._numbers)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        packet = json.dumps({"id": number, "env": dict(environ)}).encode()
        try:
            socket.send_fds(self._control, [packet], [in_fd, out_fd, log_fd])
            async with asyncio.timeout(_FORK_S):
                return await answer
        except (OSError, TimeoutError) as error:
            raise ZygoteError(f"the zygote does not answer: {error}") from error
        finally:
            self._answers.pop(number, None)

    async def wait(self, pid: int) -> int:
        """Exit code of a runner from `fork`; negative: the signal that ended it.

        Raises ZygoteError when the zygote died and nobody can know.
        """
        return await asyncio.shield(self._end_of(pid))

    async def close(self) -> None:
        """End the zygote; its runners end with it."""
        self._lose(ZygoteError("the zygote was closed"))
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    def _end_of(self, pid: int) -> asyncio.Future[int]:
        return self._ends.setdefault(pid, asyncio.get_running_loop().create_future())

    def _readable(self) -> None:
        try:
            packet = self._control.recv(_MAX_PACKET_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(ZygoteError(f"the zygote is gone: {os.strerror(error.errno or 0)}"))
            return
        if packet:
            self._heard(json.loads(packet))
        else:
            self._lose(ZygoteError("the zygote ended"))

    def _heard(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self._ready.set_result(message["ready"])
        elif "ended" in message:
            end = self._end_of(message["ended"])
            if not end.done():
                end.set_result(message["code"])
        elif answer := self._answers.get(message["id"]):
            if "pid" in message:
                self._end_of(message["pid"])
                answer.set_result(message["pid"])
            else:
                answer.set_exception(ZygoteError(message["error"]))

    def _lose(self, error: ZygoteError) -> None:
        if self._closed:
            return
        self._closed = True
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        for future in [self._ready, *self._answers.values(), *self._ends.values()]:
            if not future.done():
                future.set_exception(error)
                # Whoever asks later still gets it; nobody asking is no fault.
                future.exception()

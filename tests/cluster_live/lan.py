"""Machines of a LAN: network namespaces joined by a switch of our own that can be told to fail.

Needs root on Linux, the `ip` tool and /dev/net/tun; `lan_missing()` says what is missing. Nothing
outside the namespaces is touched, and no traffic leaves them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from tests.cluster_live.switch import DEVICE, enter_namespace, usable
from tests.daemon_process import ROOT

T = TypeVar("T")
NETWORK = "198.18.5"


def lan_missing() -> str | None:
    """Why there can be no LAN here; None when there can."""
    if (why := usable()) is not None:
        return why
    return None if shutil.which("ip") else "the ip tool is missing"


class Machine:
    """One namespace. Its address is `address`; `run` does something with sockets from inside."""

    def __init__(self, space: str, number: int) -> None:
        self.space = space
        self.number = number
        self.address = f"{NETWORK}.{number + 1}"
        self.path = f"/run/netns/{space}"
        self._inside = ThreadPoolExecutor(4, initializer=enter_namespace, initargs=(self.path,))

    def run(self, work: Callable[[], T]) -> T:
        return self._inside.submit(work).result(120)

    @property
    def enter(self) -> Callable[[], None]:
        """For a child process, before it becomes the daemon."""
        return partial(enter_namespace, self.path)

    def connect(self) -> None:
        for arguments in (
            ("link", "set", "lo", "up"),
            ("addr", "add", f"{self.address}/24", "dev", DEVICE),
            ("link", "set", DEVICE, "up"),
            # Multicast has no route of its own in a network without a gateway.
            ("route", "add", "224.0.0.0/4", "dev", DEVICE),
        ):
            ip("-n", self.space, *arguments)

    def close(self) -> None:
        self._inside.shutdown()


class Lan:
    """Machines on one switch. Ports of the switch are the numbers of the machines."""

    def __init__(self, machines: list[Machine]) -> None:
        self.machines = machines
        self._switch = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster_live.switch"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._order(ports=[machine.path for machine in machines])
        for machine in machines:
            machine.connect()

    def cut(self, here: Iterable[int], there: Iterable[int]) -> None:
        """No frame passes between the two sides, in either direction."""
        pairs = [(a, b) for a in here for b in there]
        self._order(blocked=[*pairs, *((b, a) for a, b in pairs)])

    def cut_one_way(self, source: int, target: int) -> None:
        """What the source sends does not reach the target; the other way is well."""
        self._order(blocked=[(source, target)])

    def disturb(self, *, loss: float = 0.0, delay_s: float = 0.0) -> None:
        """For all frames from now on."""
        self._order(loss=loss, delay_s=delay_s)

    @contextlib.contextmanager
    def recorded(self, path: Path) -> Iterator[None]:
        """Keep every frame in a file, as one who taps the switch would; see `tcp_payloads`."""
        self._order(record=str(path))
        try:
            yield
        finally:
            self._order(record=None)

    def heal(self) -> None:
        self._order(blocked=[], loss=0.0, delay_s=0.0)

    def close(self) -> None:
        assert self._switch.stdin is not None
        assert self._switch.stdout is not None
        self._switch.stdin.close()
        self._switch.wait(300)
        self._switch.stdout.close()

    def _order(self, **command: object) -> None:
        assert self._switch.stdin is not None
        assert self._switch.stdout is not None
        self._switch.stdin.write(json.dumps(command) + "\n")
        self._switch.stdin.flush()
        answer = self._switch.stdout.readline()
        assert answer == "done\n", f"the switch answered {answer!r}"


def tcp_payloads(recording: Path) -> list[bytes]:
    """What went over each TCP connection, in each direction, as it was sent."""
    data = recording.read_bytes()
    flows: dict[bytes, list[tuple[int, bytes]]] = {}
    while data:
        size = int.from_bytes(data[:4], "big")
        frame, data = data[4 : 4 + size], data[4 + size :]
        packet = frame[14:]
        if frame[12:14] != b"\x08\x00" or packet[9] != socket.IPPROTO_TCP:
            continue
        start = (packet[0] & 0x0F) * 4
        segment = packet[start : int.from_bytes(packet[2:4], "big")]
        flow = packet[12:20] + segment[:4]
        number = int.from_bytes(segment[4:8], "big")
        flows.setdefault(flow, []).append((number, segment[(segment[12] >> 4) * 4 :]))
    return [_in_order(segments) for segments in flows.values()]


def _in_order(segments: list[tuple[int, bytes]]) -> bytes:
    """The bytes of a flow whose segments may come late or twice."""
    first = segments[0][0]
    sent, end = bytearray(), 0
    for start, content in sorted(((n - first) % 2**32, c) for n, c in segments):
        sent.extend(content[max(0, end - start) :])
        end = max(end, start + len(content))
    return bytes(sent)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, timeout=600)


@contextlib.contextmanager
def lan(count: int) -> Iterator[Lan]:
    """So many machines, all connected; gone with the block."""
    spaces = [f"skl{os.getpid() % 100_000}n{number}" for number in range(count)]
    made: list[Machine] = []
    network: Lan | None = None
    try:
        for number, space in enumerate(spaces):
            ip("netns", "add", space)
            made.append(Machine(space, number))
        network = Lan(made)
        yield network
    finally:
        if network is not None:
            network.close()
        for machine in made:
            machine.close()
            ip("netns", "del", machine.space)

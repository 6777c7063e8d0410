"""A switch for Ethernet frames between TAP devices, with faults to order; runs as a process.

The kernel of a CI machine may have no netem, so loss and delay are made here. Commands are JSON
lines on stdin, each answered by a line on stdout:

    {"ports": ["/run/netns/a", …]}      open a TAP device in each namespace, once, first
    {"blocked": [[0, 2], …]}            frames from port 0 to port 2 are dropped, and so on
    {"loss": 0.05, "delay_s": 0.1}      for all frames that are not blocked
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import random
import selectors
import struct
import sys
import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import BinaryIO

DEVICE = "lan0"
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_CLONE_NEWNET = 0x40000000
_FRAME = 65_536
_BURST = 64


def enter_namespace(path: str) -> None:
    """This thread's sockets and devices are in that network namespace from now on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {path}")
    finally:
        os.close(descriptor)


def open_tap() -> int:
    """A TAP device in the current namespace."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH22x", DEVICE.encode(), _IFF_TAP | _IFF_NO_PI)
    fcntl.ioctl(descriptor, _TUNSETIFF, request)
    return descriptor


@dataclass
class Switch:
    """Floods what it does not know, like any switch; the faults apply to each pair of ports."""

    ports: list[int] = field(default_factory=list)
    blocked: set[tuple[int, int]] = field(default_factory=set)
    loss: float = 0.0
    delay_s: float = 0.0
    homes: dict[bytes, int] = field(default_factory=dict)
    late: list[tuple[float, int, int, bytes]] = field(default_factory=list)
    numbers: count[int] = field(default_factory=count)
    recording: BinaryIO | None = None
    dice: random.Random = field(default_factory=lambda: random.Random(7))

    def order(self, command: dict[str, object]) -> None:
        if "ports" in command:
            home = "/proc/self/ns/net"
            own = os.open(home, os.O_RDONLY)
            for path in command["ports"]:  # type: ignore[attr-defined]
                enter_namespace(path)
                self.ports.append(open_tap())
            enter_namespace(f"/proc/self/fd/{own}")
        if "blocked" in command:
            self.blocked = {(a, b) for a, b in command["blocked"]}  # type: ignore[attr-defined]
        if "record" in command:
            if self.recording is not None:
                self.recording.close()
            path = command["record"]
            # Open until another command; the process ends with the test.
            self.recording = None if path is None else Path(str(path)).open("wb")  # noqa: SIM115
        self.loss = float(command.get("loss", self.loss))  # type: ignore[arg-type]
        self.delay_s = float(command.get("delay_s", self.delay_s))  # type: ignore[arg-type]

    def arrived(self, source: int, frame: bytes) -> None:
        if self.recording is not None:
            self.recording.write(len(frame).to_bytes(4, "big") + frame)
        target, sender = frame[:6], frame[6:12]
        self.homes[sender] = source
        known = None if target[0] & 1 else self.homes.get(target)
        targets = range(len(self.ports)) if known is None else [known]
        for port in targets:
            if port == source or (source, port) in self.blocked:
                continue
            if self.loss and self.dice.random() < self.loss:
                continue
            if self.delay_s:
                due = time.monotonic() + self.delay_s
                heapq.heappush(self.late, (due, next(self.numbers), port, frame))
            else:
                self.deliver(port, frame)

    def deliver(self, port: int, frame: bytes) -> None:
        try:
            os.write(self.ports[port], frame)
        except OSError:
            return  # the device is down or full: a cable would have lost it, too

    def deliver_due(self) -> float | None:
        """Seconds until the next frame is due."""
        while self.late:
            wait_s = self.late[0][0] - time.monotonic()
            if wait_s > 0:
                return wait_s
            _, _, port, frame = heapq.heappop(self.late)
            self.deliver(port, frame)
        return None


def main() -> None:
    switch, selector = Switch(), selectors.DefaultSelector()
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ, None)
    commands = b""
    while True:
        for key, _ in selector.select(switch.deliver_due()):
            if key.data is None:
                said = os.read(sys.stdin.fileno(), _FRAME)
                if not said:
                    return
                commands += said
                while b"\n" in commands:
                    line, _, commands = commands.partition(b"\n")
                    known = len(switch.ports)
                    switch.order(json.loads(line))
                    for number in range(known, len(switch.ports)):
                        selector.register(switch.ports[number], selectors.EVENT_READ, number)
                    sys.stdout.write("done\n")
                    sys.stdout.flush()
            else:
                for _ in range(_BURST):
                    try:
                        frame = os.read(switch.ports[key.data], _FRAME)
                    except (BlockingIOError, OSError):
                        break
                    switch.arrived(key.data, frame)


def usable() -> str | None:
    """Why there can be no such network here; None when there can."""
    if sys.platform != "linux":
        return "network namespaces are a thing of Linux"
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    return None


if __name__ == "__main__":
    main()

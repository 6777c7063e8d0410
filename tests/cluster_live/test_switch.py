"""The network of the tests itself: what passes, what does not, and how late."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from tests.cluster_live.lan import Lan, Machine, lan, lan_missing

pytestmark = pytest.mark.skipif(lan_missing() is not None, reason=str(lan_missing()))

PORT = 7777
_SHORT_S = 0.3


@pytest.fixture(scope="module")
def network() -> Iterator[Lan]:
    with lan(3) as made:
        yield made


def listen(machine: Machine) -> socket.socket:
    def open_socket() -> socket.socket:
        found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        found.bind((machine.address, PORT))
        return found

    return machine.run(open_socket)


def arrives(source: socket.socket, target: socket.socket, wait_s: float = 10.0) -> float | None:
    """Seconds that a datagram takes; None when it does not arrive. Earlier ones are dropped."""
    target.settimeout(0.01)
    try:
        while True:
            target.recv(100)
    except TimeoutError:
        begun = time.monotonic()
        source.sendto(b"x", target.getsockname())
    target.settimeout(wait_s)
    try:
        target.recv(100)
    except TimeoutError:
        return None
    return time.monotonic() - begun


def test_cuts_delays_and_losses_do_what_they_say(network: Lan) -> None:
    a, b, c = (listen(machine) for machine in network.machines)
    try:
        assert arrives(a, b) is not None
        network.cut([0], [1, 2])
        assert arrives(a, b, _SHORT_S) is None
        assert arrives(b, a, _SHORT_S) is None
        assert arrives(b, c) is not None
        network.cut_one_way(0, 1)
        assert arrives(a, b, _SHORT_S) is None
        assert arrives(b, a) is not None
        network.heal()
        assert arrives(a, b) is not None
        network.disturb(delay_s=0.2)
        took_s = arrives(a, c)
        assert took_s is not None
        assert took_s >= 0.19
        network.disturb(loss=1.0)
        assert arrives(a, b, _SHORT_S) is None
        network.heal()
        assert arrives(a, b) is not None
    finally:
        for one in (a, b, c):
            one.close()

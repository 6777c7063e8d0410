"""Whether every rank reaches the next one of the ring, tried before MLX joins it.

MLX says nothing of a neighbour that does not answer: one rank waits for ever, another gives up
after half a minute, and neither names an address. Its ports cannot be tried, because they take
whoever calls first for a rank. So each rank has a bell beside it, at the same address; every rank
rings the next one's, rank 0 hears of all links, and tells everybody which one is broken.
"""

import contextlib
import json
import socket
import threading
from typing import Any

from skulkd.runner.framing import FrameError, pack
from skulkd.runner.rendezvous import GroupUnreachable, Meeting, Party, first_frame

PORT = "bell_port"
_RING_S = 10.0
_HELLO_S = 2.0
_LOOK_S = 0.2
# Rank 0 hears of every link before it speaks, so the others wait longer than a link may take.
_PATIENCE_S = 3 * _RING_S
_HERE = b'"here"'


class Bell:
    """Answers whoever asks for this rank of this instance, until it is closed."""

    def __init__(self, ip: str, instance_id: str, rank: int) -> None:
        self._server = socket.create_server((ip, 0))
        self._server.settimeout(_LOOK_S)
        self._wanted = {"instance": instance_id, "rank": rank}
        self._closed = threading.Event()
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._answer, name="bell", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def _answer(self) -> None:
        with self._server:
            while not self._closed.is_set():
                with contextlib.suppress(OSError, FrameError, ValueError):
                    connection, _ = self._server.accept()
                    with connection:
                        connection.settimeout(_HELLO_S)
                        if json.loads(first_frame(connection)) == self._wanted:
                            connection.sendall(pack(_HERE))


def check_links(party: Party, meeting: Meeting) -> None:
    """Every rank calls this after the meeting. Raises GroupUnreachable on all of them."""
    broken = _ring_next(party, meeting.said)
    if party.rank == 0:
        _judge(meeting, broken)
        return
    channel = meeting.channels[0]
    try:
        channel.say({"link": broken})
        answer = channel.ask(_PATIENCE_S)
    except (OSError, FrameError, ValueError) as error:
        why = f"rank 0 at {channel.address} was lost while the links were tried: {error}"
        raise GroupUnreachable(why if broken is None else f"{broken}; {why}") from error
    if answer.get("failed"):
        raise GroupUnreachable(str(answer["failed"]))


def _judge(meeting: Meeting, broken: str | None) -> None:
    """Rank 0 gathers what the others found and says whether all of them go on."""
    found = [broken]
    for channel in meeting.channels:
        try:
            found.append(channel.ask(_PATIENCE_S).get("link"))
        except (OSError, FrameError, ValueError) as error:
            found.append(
                f"rank {channel.rank} at {channel.address} was lost while the links were tried:"
                f" {error}"
            )
    why = "; ".join(filter(None, found)) or None
    for channel in meeting.channels:
        with contextlib.suppress(OSError):
            channel.say({"failed": why})
    if why is not None:
        for channel in meeting.channels:
            channel.close()
        raise GroupUnreachable(why)


def _ring_next(party: Party, said: list[dict[str, Any]]) -> str | None:
    """None when the next rank answers at the address that this rank will dial."""
    after = (party.rank + 1) % len(party.hosts)
    ip, port = party.hosts[after].ip, int(said[after][PORT])
    hello = {"instance": party.instance_id, "rank": after}
    try:
        with socket.create_connection((ip, port), _RING_S) as connection:
            connection.settimeout(_RING_S)
            connection.sendall(pack(json.dumps(hello).encode()))
            if first_frame(connection) == _HERE:
                return None
            error = "somebody else answered"
    except (OSError, FrameError) as failure:
        error = str(failure)
    return (
        f"rank {party.rank} cannot reach rank {after} at {ip}, port {port}: {error}. "
        "Can that machine be reached at this address, and does a firewall let it through?"
    )

"""How the ranks of a group find each other, before and beside MLX.

Rank 0 waits at its address, the others call it, each says which rank it is and where its ring
port will be. These connections stay open: orders go over them, and their end tells that a rank
is gone even when MLX does not notice. MLX's own ports accept anybody and tell nothing, so they
are chosen late, and nobody is asked to join them before everybody is known to be alive.
"""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from skulkd.runner.framing import FrameError, FrameReader, pack
from skulkd.wire.instances import Host

_HELLO_S = 2.0
_RETRY_S = 0.1
# Rank 0 knows who is missing, so the others leave the last word to it.
_LAST_WORD_S = 5.0
_BYE = b'"bye"'


class GroupUnreachable(Exception):
    """The group did not come together; the text names the ranks and addresses."""


class Channel:
    """The connection to one other rank."""

    def __init__(self, connection: socket.socket, rank: int, address: str) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._reader = FrameReader(connection.fileno())
        self._frames: list[bytes] = []
        self.rank = rank
        self.address = address

    def send(self, content: bytes) -> None:
        """Raises OSError when the other rank is gone."""
        self._connection.sendall(pack(content))

    def receive(self) -> bytes | None:
        """The next message; None at the end. Raises OSError and FrameError."""
        while not self._frames:
            frames = self._reader.read()
            if frames is None:
                return None
            self._frames = frames
        return self._frames.pop(0)

    def ask(self, timeout_s: float) -> Any:
        """The next message as a value, within this time. Raises OSError and FrameError."""
        self._connection.settimeout(max(timeout_s, 0.01))
        content = first_frame(self._connection)
        self._connection.settimeout(None)
        return json.loads(content)

    def say(self, value: Any) -> None:
        self.send(json.dumps(value).encode())

    def watch(self, take: Callable[[bytes], None], on_end: Callable[["Channel"], None]) -> None:
        """Hand on what comes, in a thread; `on_end` unless the other side said goodbye."""

        def run() -> None:
            with contextlib.suppress(OSError, FrameError):
                while (content := self.receive()) is not None:
                    if content == _BYE:
                        return
                    take(content)
            on_end(self)

        threading.Thread(target=run, name=f"rank-{self.rank}", daemon=True).start()

    def bid_farewell(self) -> None:
        """Say that the end of this connection is in order."""
        with contextlib.suppress(OSError):
            self.send(_BYE)

    def close(self) -> None:
        self._connection.close()


def first_frame(connection: socket.socket) -> bytes:
    """Exactly one frame, so that nothing that follows is lost."""
    size = int.from_bytes(_exactly(connection, 4), "big")
    if size > 1 << 20:
        raise FrameError(f"a greeting of {size} bytes")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError("closed before a whole message came")
        data += part
    return data


@dataclass(frozen=True, slots=True)
class Party:
    """Who wants to meet. `said` is what this rank tells rank 0, and gets back from all."""

    hosts: list[Host]
    rank: int
    instance_id: str
    said: dict[str, Any]
    deadline_s: float
    clock: Callable[[], float] = time.monotonic


@dataclass(slots=True)
class Meeting:
    """Rank 0 has a channel to everybody, the others one to rank 0. `said` is in rank order."""

    channels: list[Channel] = field(default_factory=list)
    said: list[dict[str, Any]] = field(default_factory=list)


def address_of(hosts: list[Host], rank: int) -> str:
    return f"{hosts[rank].ip}:{hosts[rank].port}"


def meet(party: Party) -> Meeting:
    """Wait for all ranks. Raises GroupUnreachable."""
    return _receive_all(party) if party.rank == 0 else _call_rank_0(party)


def _receive_all(party: Party) -> Meeting:
    ends = party.clock() + party.deadline_s
    present: dict[int, tuple[Channel, dict[str, Any]]] = {}
    with _listen(party.hosts[0]) as server:
        while len(present) < len(party.hosts) - 1:
            server.settimeout(max(ends - party.clock(), 0.01))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                _give_up(party, present)
            greeted = _greet(connection, party)
            if greeted is not None:
                present[greeted[0].rank] = greeted
    everything = [party.said, *(present[rank][1] for rank in sorted(present))]
    channels = [present[rank][0] for rank in sorted(present)]
    for channel in channels:
        channel.say({"everybody": everything})
    return Meeting(channels, everything)


def _listen(host: Host) -> socket.socket:
    try:
        return socket.create_server((host.ip, host.port))
    except OSError:
        # The address is what others dial; it need not be one of this machine's own.
        try:
            return socket.create_server(("", host.port))
        except OSError as error:
            raise GroupUnreachable(
                f"rank 0 cannot listen at {host.ip}:{host.port}: {error.strerror}"
            ) from error


def _greet(connection: socket.socket, party: Party) -> tuple[Channel, dict[str, Any]] | None:
    """A rank of this group, or None for a stranger, who is sent away."""
    connection.settimeout(_HELLO_S)
    try:
        hello = json.loads(first_frame(connection))
        rank = hello["rank"]
        ours = hello["instance"] == party.instance_id and 0 < rank < len(party.hosts)
        said = dict(hello["said"])
    except (OSError, FrameError, ValueError, TypeError, KeyError):
        ours = False
    if not ours:
        connection.close()
        return None
    connection.settimeout(None)
    return Channel(connection, rank, address_of(party.hosts, rank)), said


def _give_up(party: Party, present: dict[int, tuple[Channel, dict[str, Any]]]) -> NoReturn:
    missing = [rank for rank in range(1, len(party.hosts)) if rank not in present]
    who = " and ".join(f"rank {rank} at {address_of(party.hosts, rank)}" for rank in missing)
    here = address_of(party.hosts, 0)
    why = (
        f"{who} did not call rank 0 at {here} within {party.deadline_s:g} s. "
        "Is its daemon running, and can it reach that address?"
    )
    for channel, _ in present.values():
        channel.say({"failed": why})
        channel.close()
    raise GroupUnreachable(why)


def _call_rank_0(party: Party) -> Meeting:
    ends = time.monotonic() + party.deadline_s
    address = address_of(party.hosts, 0)
    pause = threading.Event()
    while True:
        try:
            connection = socket.create_connection(
                (party.hosts[0].ip, party.hosts[0].port), max(ends - time.monotonic(), 0.01)
            )
            break
        except OSError as error:
            if time.monotonic() >= ends:
                raise GroupUnreachable(
                    f"rank 0 at {address} did not answer within {party.deadline_s:g} s: {error}. "
                    "Is its daemon running, and can this machine reach that address?"
                ) from error
            pause.wait(_RETRY_S)
    channel = Channel(connection, 0, address)
    hello = {"rank": party.rank, "instance": party.instance_id, "said": party.said}
    try:
        channel.say(hello)
        answer = channel.ask(ends - time.monotonic() + _LAST_WORD_S)
    except (OSError, FrameError, ValueError) as error:
        channel.close()
        raise GroupUnreachable(
            f"rank 0 at {address} took the call and did not answer: {error}"
        ) from error
    if "failed" in answer:
        channel.close()
        raise GroupUnreachable(str(answer["failed"]))
    return Meeting([channel], list(answer["everybody"]))

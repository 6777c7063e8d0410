"""How the ranks of a group find each other, before and beside MLX.

Rank 0 waits at its address, the others call it, each says which rank it is and where its ring
port will be. These connections are authenticated and stay open: orders go over them, and their end
tells that a rank is gone even when MLX does not notice. MLX's own ports accept any connection, so
they are chosen late, and no rank joins them before all ranks are known to be alive.
"""

import contextlib
import json
import queue
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from skulkd.runner.framing import FrameError
from skulkd.runner.rank_auth import Hello, SealedStream, WrongKey
from skulkd.runner.rank_server import HANDSHAKE_S, Credentials, RankServer, dial
from skulkd.wire.instances import Host

_RETRY_S = 0.1
# Rank 0 knows who is missing, so the others leave the last word to it.
_LAST_WORD_S = 5.0
_BYE = b'"bye"'
_Present = tuple["Channel", dict[str, Any]]


class GroupUnreachable(Exception):
    """The group did not come together; the text names the ranks and addresses."""


class Channel:
    """The connection to one other rank."""

    def __init__(self, stream: SealedStream, rank: int, address: str) -> None:
        self._stream = stream
        self.rank = rank
        self.address = address

    def send(self, content: bytes) -> None:
        """Raises OSError when the other rank is gone."""
        self._stream.send(content)

    def receive(self) -> bytes | None:
        """The next message; None at the end. Raises OSError and FrameError."""
        return self._stream.receive()

    def receive_within(self, timeout_s: float) -> bytes:
        """The next message, within this time. Raises OSError and FrameError."""
        self._stream.set_timeout(timeout_s)
        content = self._stream.receive()
        self._stream.set_timeout(None)
        if content is None:
            raise ConnectionResetError("connection closed")
        return content

    def ask(self, timeout_s: float) -> Any:
        """The next message as a value, within this time. Raises OSError and FrameError."""
        return json.loads(self.receive_within(timeout_s))

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
        self._stream.close()


@dataclass(frozen=True, slots=True)
class Party:
    """Who wants to meet. `said` is what this rank tells rank 0, and gets back from all."""

    hosts: list[Host]
    rank: int
    credentials: Credentials
    said: dict[str, Any]
    deadline_s: float
    addresses: tuple[str, ...] = ()
    """Of this machine, for rank 0 to wait at; its address in `hosts` unless there are several."""
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
    present: dict[int, _Present] = {}
    arrived: queue.SimpleQueue[_Present] = queue.SimpleQueue()
    server = _listen(party, lambda stream: _admit(party, stream, arrived))
    try:
        while len(present) < len(party.hosts) - 1:
            try:
                channel, said = arrived.get(timeout=max(ends - party.clock(), 0.01))
            except queue.Empty:
                _give_up(party, present)
            if channel.rank in present:
                # It has called again because its first connection broke.
                present[channel.rank][0].close()
            present[channel.rank] = (channel, said)
    finally:
        server.close()
    everything = [party.said, *(present[rank][1] for rank in sorted(present))]
    channels = [present[rank][0] for rank in sorted(present)]
    for channel in channels:
        channel.say({"everybody": everything})
    return Meeting(channels, everything)


def _listen(party: Party, accept: Callable[[SealedStream], None]) -> RankServer:
    port = party.hosts[0].port
    addresses = party.addresses or (party.hosts[0].ip,)
    try:
        return RankServer(
            [(ip, port) for ip in addresses], party.credentials, ("meeting", 0), accept
        )
    except OSError as error:
        where = " and ".join(f"{ip}:{port}" for ip in addresses)
        raise GroupUnreachable(f"rank 0 cannot listen at {where}: {error.strerror}") from error


def _admit(party: Party, stream: SealedStream, arrived: "queue.SimpleQueue[_Present]") -> None:
    """A rank has proved itself; take what it says. From a thread of its own."""
    rank = stream.hello.caller
    channel = Channel(stream, rank, "")
    try:
        said = dict(channel.ask(HANDSHAKE_S)) if 0 < rank < len(party.hosts) else None
    except (OSError, FrameError, ValueError, TypeError):
        said = None
    if said is None:
        channel.close()
        return
    channel.address = address_of(party.hosts, rank)
    arrived.put((channel, said))


def _give_up(party: Party, present: dict[int, _Present]) -> NoReturn:
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
    channel = Channel(_dial_rank_0(party, ends), 0, address)
    try:
        channel.say(party.said)
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


def _dial_rank_0(party: Party, ends: float) -> SealedStream:
    """Rank 0 may not listen yet, so this is tried until the time is up."""
    address = address_of(party.hosts, 0)
    where = (party.hosts[0].ip, party.hosts[0].port)
    hello = Hello("meeting", party.rank, 0)
    pause = threading.Event()
    while True:
        try:
            return dial(where, party.credentials, hello, ends - time.monotonic())
        except (WrongKey, ssl.SSLCertVerificationError) as error:
            raise GroupUnreachable(
                f"what answers at {address} is not rank 0 of this group: {error}. "
                "Do all nodes have the same cluster secret and certificates of one authority?"
            ) from error
        except OSError as error:
            if time.monotonic() >= ends:
                raise GroupUnreachable(
                    f"rank 0 at {address} did not answer within {party.deadline_s:g} s: {error}. "
                    "Is its daemon running, and can this machine reach that address?"
                ) from error
            pause.wait(_RETRY_S)

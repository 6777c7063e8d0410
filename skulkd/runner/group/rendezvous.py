"""How the ranks of a group find each other, before MLX joins them.

Rank 0 listens, the others connect, and each announces its options and ports. These connections are
authenticated and stay open: orders go over them, and a closed connection means that a rank is lost
even when MLX does not notice. MLX's own ports accept any connection, so they are chosen late, and
no rank joins MLX's group before all ranks are known to be alive.
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

from skulkd.runner.errors import GroupUnreachable
from skulkd.runner.framing import FrameError
from skulkd.runner.group.rank_auth import RankHello, SealedStream, WrongKey
from skulkd.runner.group.rank_server import HANDSHAKE_S, RankCredentials, RankServer, dial
from skulkd.wire.instances import Host

_RETRY_S = 0.1
# Rank 0 knows which rank is missing, so the others wait longer for its error.
_VERDICT_S = 5.0
_BYE = b'"bye"'
_Present = tuple["Channel", dict[str, Any]]


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

    def receive_json(self, timeout_s: float) -> Any:
        """The next message as a value, within this time. Raises OSError and FrameError."""
        return json.loads(self.receive_within(timeout_s))

    def send_json(self, value: Any) -> None:
        self.send(json.dumps(value).encode())

    def watch(
        self, on_message: Callable[[bytes], None], on_lost: Callable[["Channel"], None]
    ) -> None:
        """Receive in a thread; `on_lost` when the connection ends without a goodbye."""

        def run() -> None:
            with contextlib.suppress(OSError, FrameError):
                while (content := self.receive()) is not None:
                    if content == _BYE:
                        return
                    on_message(content)
            on_lost(self)

        threading.Thread(target=run, name=f"rank-{self.rank}", daemon=True).start()

    def send_goodbye(self) -> None:
        """Announce that this connection will be closed on purpose."""
        with contextlib.suppress(OSError):
            self.send(_BYE)

    def close(self) -> None:
        self._stream.close()


@dataclass(frozen=True, slots=True)
class RankInfo:
    """This rank and where the others are. `announcement` is what it sends to all of them."""

    hosts: list[Host]
    rank: int
    credentials: RankCredentials
    announcement: dict[str, Any]
    deadline_s: float
    addresses: tuple[str, ...] = ()
    """Of this machine, for rank 0 to listen at; its address in `hosts` unless there are several."""
    clock: Callable[[], float] = time.monotonic


@dataclass(slots=True)
class Connections:
    """Rank 0 has a channel to each rank, the others one to rank 0. Announcements by rank."""

    channels: list[Channel] = field(default_factory=list)
    announcements: list[dict[str, Any]] = field(default_factory=list)


def address_of(hosts: list[Host], rank: int) -> str:
    return f"{hosts[rank].ip}:{hosts[rank].port}"


def rendezvous(info: RankInfo) -> Connections:
    """Wait for all ranks. Raises GroupUnreachable."""
    return _accept_ranks(info) if info.rank == 0 else _dial_in(info)


def _accept_ranks(info: RankInfo) -> Connections:
    ends = info.clock() + info.deadline_s
    present: dict[int, _Present] = {}
    arrived: queue.SimpleQueue[_Present] = queue.SimpleQueue()
    server = _listen(info, lambda stream: _admit(info, stream, arrived))
    try:
        while len(present) < len(info.hosts) - 1:
            try:
                channel, announcement = arrived.get(timeout=max(ends - info.clock(), 0.01))
            except queue.Empty:
                _give_up(info, present)
            if channel.rank in present:
                # It has connected again because its first connection broke.
                present[channel.rank][0].close()
            present[channel.rank] = (channel, announcement)
    finally:
        server.close()
    announcements = [info.announcement, *(present[rank][1] for rank in sorted(present))]
    channels = [present[rank][0] for rank in sorted(present)]
    for channel in channels:
        channel.send_json({"everybody": announcements})
    return Connections(channels, announcements)


def _listen(info: RankInfo, accept: Callable[[SealedStream], None]) -> RankServer:
    port = info.hosts[0].port
    addresses = info.addresses or (info.hosts[0].ip,)
    try:
        return RankServer(
            [(ip, port) for ip in addresses], info.credentials, ("meeting", 0), accept
        )
    except OSError as error:
        where = " and ".join(f"{ip}:{port}" for ip in addresses)
        raise GroupUnreachable(f"rank 0 cannot listen at {where}: {error.strerror}") from error


def _admit(info: RankInfo, stream: SealedStream, arrived: "queue.SimpleQueue[_Present]") -> None:
    """Receive the announcement of an authenticated rank. Runs in the connection's thread."""
    rank = stream.hello.caller
    channel = Channel(stream, rank, "")
    try:
        announcement = (
            dict(channel.receive_json(HANDSHAKE_S)) if 0 < rank < len(info.hosts) else None
        )
    except (OSError, FrameError, ValueError, TypeError):
        announcement = None
    if announcement is None:
        channel.close()
        return
    channel.address = address_of(info.hosts, rank)
    arrived.put((channel, announcement))


def _give_up(info: RankInfo, present: dict[int, _Present]) -> NoReturn:
    missing = [rank for rank in range(1, len(info.hosts)) if rank not in present]
    who = " and ".join(f"rank {rank} at {address_of(info.hosts, rank)}" for rank in missing)
    here = address_of(info.hosts, 0)
    why = (
        f"{who} did not call rank 0 at {here} within {info.deadline_s:g} s. "
        "Is its daemon running, and can it reach that address?"
    )
    for channel, _ in present.values():
        channel.send_json({"failed": why})
        channel.close()
    raise GroupUnreachable(why)


def _dial_in(info: RankInfo) -> Connections:
    ends = time.monotonic() + info.deadline_s
    address = address_of(info.hosts, 0)
    channel = Channel(_dial_rank_0(info, ends), 0, address)
    try:
        channel.send_json(info.announcement)
        answer = channel.receive_json(ends - time.monotonic() + _VERDICT_S)
    except (OSError, FrameError, ValueError) as error:
        channel.close()
        raise GroupUnreachable(
            f"rank 0 at {address} took the call and did not answer: {error}"
        ) from error
    if "failed" in answer:
        channel.close()
        raise GroupUnreachable(str(answer["failed"]))
    return Connections([channel], list(answer["everybody"]))


def _dial_rank_0(info: RankInfo, ends: float) -> SealedStream:
    """Rank 0 may not listen yet, so this is tried until the time is up."""
    address = address_of(info.hosts, 0)
    where = (info.hosts[0].ip, info.hosts[0].port)
    hello = RankHello("meeting", info.rank, 0)
    pause = threading.Event()
    while True:
        try:
            return dial(where, info.credentials, hello, ends - time.monotonic())
        except (WrongKey, ssl.SSLCertVerificationError) as error:
            raise GroupUnreachable(
                f"what answers at {address} is not rank 0 of this group: {error}. "
                "Do all nodes have the same cluster secret and certificates of one authority?"
            ) from error
        except OSError as error:
            if time.monotonic() >= ends:
                raise GroupUnreachable(
                    f"rank 0 at {address} did not answer within {info.deadline_s:g} s: {error}. "
                    "Is its daemon running, and can this machine reach that address?"
                ) from error
            pause.wait(_RETRY_S)

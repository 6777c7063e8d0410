"""Whether every rank reaches the next one of the ring, tried before MLX joins it.

MLX says nothing of a neighbour that does not answer: one rank waits for ever, another gives up
after half a minute, and neither names an address. Its ports cannot be tried, because they take
the first connection for a rank. So each rank has a second port beside it, at the same address;
every rank calls that of the next one, and rank 0 tells all ranks which link is broken.
"""

import contextlib
from typing import Any

from skulkd.runner.framing import FrameError
from skulkd.runner.rank_auth import Hello, SealedStream, WrongKey
from skulkd.runner.rank_server import Credentials, RankServer, dial
from skulkd.runner.rendezvous import GroupUnreachable, Meeting, Party

PORT = "bell_port"
_RING_S = 10.0
# Rank 0 hears of every link before it speaks, so the others wait longer than a link may take.
_PATIENCE_S = 3 * _RING_S


class Bell:
    """Answers the rank before this one, until it is closed. Raises OSError."""

    def __init__(self, ip: str, credentials: Credentials, rank: int) -> None:
        self._server = RankServer([(ip, 0)], credentials, ("link", rank), SealedStream.close)
        self.port = self._server.port

    def close(self) -> None:
        self._server.close()


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
    hello = Hello("link", party.rank, after)
    try:
        dial((ip, port), party.credentials, hello, _RING_S).close()
    except WrongKey:
        error = "another program answered"
    except OSError as failure:
        error = str(failure)
    else:
        return None
    return (
        f"rank {party.rank} cannot reach rank {after} at {ip}, port {port}: {error}. "
        "Can that machine be reached at this address, and does a firewall let it through?"
    )

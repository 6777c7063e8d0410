"""Whether every rank reaches the next one of the ring, checked before MLX joins it.

MLX reports no address when a link does not work: one rank waits for ever, another gives up after
half a minute. Its own ports cannot be probed, because they accept the first connection as a rank.
So each rank has a second port at the same address; every rank connects to that of the next one,
and rank 0 tells all ranks which links are broken.
"""

import contextlib
from typing import Any

from skulkd.runner.errors import GroupUnreachable
from skulkd.runner.framing import FrameError
from skulkd.runner.group.rank_auth import RankHello, SealedStream, WrongKey
from skulkd.runner.group.rank_server import RankCredentials, RankServer, dial
from skulkd.runner.group.rendezvous import Connections, RankInfo

PORT_KEY = "probe_port"
"""Of the probe's port in a rank's announcement."""
_PROBE_S = 10.0
# Rank 0 waits for the result of every link before it answers.
_RESULT_S = 3 * _PROBE_S


class LinkProbe:
    """Accepts the rank before this one, until it is closed. Raises OSError."""

    def __init__(self, ip: str, credentials: RankCredentials, rank: int) -> None:
        self._server = RankServer([(ip, 0)], credentials, ("link", rank), SealedStream.close)
        self.port = self._server.port

    def close(self) -> None:
        self._server.close()


def check_links(info: RankInfo, connections: Connections) -> None:
    """Every rank calls this after the rendezvous. Raises GroupUnreachable on all of them."""
    broken = _probe_next(info, connections.announcements)
    if info.rank == 0:
        _collect_results(connections, broken)
        return
    channel = connections.channels[0]
    try:
        channel.send_json({"link": broken})
        answer = channel.receive_json(_RESULT_S)
    except (OSError, FrameError, ValueError) as error:
        why = f"rank 0 at {channel.address} was lost while the links were tried: {error}"
        raise GroupUnreachable(why if broken is None else f"{broken}; {why}") from error
    if answer.get("failed"):
        raise GroupUnreachable(str(answer["failed"]))


def _collect_results(connections: Connections, broken: str | None) -> None:
    """Rank 0 gathers the results and tells all ranks whether to go on."""
    found = [broken]
    for channel in connections.channels:
        try:
            found.append(channel.receive_json(_RESULT_S).get("link"))
        except (OSError, FrameError, ValueError) as error:
            found.append(
                f"rank {channel.rank} at {channel.address} was lost while the links were tried:"
                f" {error}"
            )
    why = "; ".join(filter(None, found)) or None
    for channel in connections.channels:
        with contextlib.suppress(OSError):
            channel.send_json({"failed": why})
    if why is not None:
        for channel in connections.channels:
            channel.close()
        raise GroupUnreachable(why)


def _probe_next(info: RankInfo, announcements: list[dict[str, Any]]) -> str | None:
    """None when the next rank answers at the address that this rank will dial."""
    after = (info.rank + 1) % len(info.hosts)
    ip, port = info.hosts[after].ip, int(announcements[after][PORT_KEY])
    hello = RankHello("link", info.rank, after)
    try:
        dial((ip, port), info.credentials, hello, _PROBE_S).close()
    except WrongKey:
        error = "another program answered"
    except OSError as failure:
        error = str(failure)
    else:
        return None
    return (
        f"rank {info.rank} cannot reach rank {after} at {ip}, port {port}: {error}. "
        "Can that machine be reached at this address, and does a firewall let it through?"
    )

"""HTTP refusals across nodes: what another node's API would have said becomes our own answer.

One node serves a method with `answer_peers`, another asks with `ask_node`; an `ApiError` on the
far side is the same `ApiError` here. A node that is unknown is a 404, one that is silent a 502.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from skulkd.api.errors import ApiError
from skulkd.peers import PeerError, PeerGone, PeerRefused, Peers
from skulkd.wire.ids import NodeId

_HTTP = "http"


def answer_peers(peers: Peers, method: str, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
    """Let other nodes ask; an ApiError crosses the wire."""

    async def handle(_asker: NodeId, body: bytes) -> bytes:
        try:
            return await answer(body)
        except ApiError as error:
            data = json.dumps({"status": error.status}).encode()
            raise PeerRefused(peers.node_id, _HTTP, error.message, data) from error

    peers.serve(method, handle)


async def ask_node(
    peers: Peers, node_id: NodeId, method: str, body: bytes, *, deadline_s: float, unknown: str
) -> bytes:
    """The answer of that node. Raises ApiError; `unknown` is the sentence of the 404."""
    try:
        return await peers.ask(node_id, method, body, deadline_s=deadline_s)
    except PeerGone as error:
        raise ApiError(404, unknown) from error
    except PeerRefused as error:
        if error.kind == _HTTP:
            raise ApiError(int(json.loads(error.data)["status"]), str(error)) from error
        raise ApiError(502, str(error)) from error
    except PeerError as error:
        raise ApiError(502, str(error)) from error

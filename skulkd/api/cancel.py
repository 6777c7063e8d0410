"""`POST /v1/cancel/{command_id}`: end a request that is being answered, whoever answers it."""

from __future__ import annotations

import json

from aiohttp import web

from skulkd.api.callers import CALLER, Caller, allows
from skulkd.api.errors import ApiError, ok
from skulkd.api.peer_calls import answer_peers, ask_node
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.peers import ask_others
from skulkd.wire.chat import CancelCommandResponse
from skulkd.wire.ids import CommandId, NodeId, TokenId
from skulkd.wire.state import State
from skulkd.wire.tasks import BaseRequestTask

routes = RouteTable("chat")
METHOD = "command.cancel"
DEADLINE_S = 5.0
_UNKNOWN = "Command not found or already completed"


@routes.post(
    "/v1/cancel/{command_id}",
    scope="infer",
    summary="End a request that any node is answering",
    answer=CancelCommandResponse,
    counted=False,
    cancels=True,
    errors=(404, 502),
)
async def post_cancel(request: web.Request) -> web.Response:
    command_id = request.match_info["command_id"]
    if not await _cancel_anywhere(services(request), command_id, _only_of(CALLER.get())):
        raise ApiError(404, _UNKNOWN)
    body = CancelCommandResponse(message="Command cancelled.", command_id=CommandId(command_id))
    return ok(body.model_dump_json().encode())


def serve_cancel(node: Services) -> None:
    """Let other nodes end requests that clients of this one wait for."""

    async def answer(body: bytes) -> bytes:
        asked = json.loads(body)
        owner = None if asked.get("owner") is None else TokenId(str(asked["owner"]))
        found = await node.inference.commands.cancel(str(asked["command_id"]), owner)
        return json.dumps({"cancelled": found}).encode()

    answer_peers(node.peers, METHOD, answer)


def _only_of(caller: Caller) -> TokenId | None:
    """Whose requests the caller may end; None: everybody's."""
    token = caller.token
    return None if token is None or allows(token.scopes, "operate") else token.token_id


async def _cancel_anywhere(node: Services, command_id: str, owner: TokenId | None) -> bool:
    if await node.inference.commands.cancel(command_id, owner):
        return True
    body = json.dumps({"command_id": command_id, "owner": owner}).encode()
    answering = _answering_node(node.replica.state, command_id)
    if answering is not None:
        answer = await ask_node(
            node.peers, answering, METHOD, body, deadline_s=DEADLINE_S, unknown=_UNKNOWN
        )
        return bool(json.loads(answer)["cancelled"])
    # The state learns of a request a moment after it began.
    asked = await ask_others(node.peers, METHOD, body, deadline_s=DEADLINE_S)
    return any(one.answer is not None and json.loads(one.answer)["cancelled"] for one in asked)


def _answering_node(state: State, command_id: str) -> NodeId | None:
    """The node whose client waits for it, as far as the state knows."""
    for task in state.tasks.values():
        if isinstance(task, BaseRequestTask) and task.command_id == command_id:
            return task.owner_node
    return None

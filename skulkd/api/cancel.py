"""`POST /v1/cancel/{command_id}`: end a request that is being answered, whoever answers it."""

from __future__ import annotations

from aiohttp import web

from skulkd.api.callers import CALLER, Caller, allows
from skulkd.api.errors import ApiError, ok
from skulkd.api.node_calls import NodeCall
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.wire.base import SnakeModel
from skulkd.wire.chat import CancelCommandResponse
from skulkd.wire.ids import CommandId, NodeId, TokenId
from skulkd.wire.state import State
from skulkd.wire.tasks import BaseRequestTask

routes = RouteTable("chat")
_UNKNOWN = "Command not found or already completed"


class CancelQuestion(SnakeModel):
    """To the node whose client waits; with an owner, only if the request is that token's."""

    command_id: str
    owner: TokenId | None = None


class CancelResult(SnakeModel):
    cancelled: bool


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


def _only_of(caller: Caller) -> TokenId | None:
    """Whose requests the caller may end; None: everybody's."""
    token = caller.token
    return None if token is None or allows(token.scopes, "operate") else token.token_id


async def _cancel_anywhere(node: Services, command_id: str, owner: TokenId | None) -> bool:
    if await node.requests.cancel(command_id, owner):
        return True
    question = CancelQuestion(command_id=command_id, owner=owner)
    answering = _answering_node(node.replica.state, command_id)
    if answering is not None:
        answer = await CANCEL.ask(node, answering, question, unknown=_UNKNOWN)
        return CancelResult.model_validate_json(answer).cancelled
    # The state learns of a request a moment after it began.
    answers = [asked.answer for asked in await CANCEL.ask_others(node, question)]
    return any(CancelResult.model_validate_json(answer).cancelled for answer in answers if answer)


def _answering_node(state: State, command_id: str) -> NodeId | None:
    """The node whose client waits for it, as far as the state knows."""
    for task in state.tasks.values():
        if isinstance(task, BaseRequestTask) and task.command_id == command_id:
            return task.owner_node
    return None


async def _answer_cancel(node: Services, question: CancelQuestion) -> CancelResult:
    return CancelResult(cancelled=await node.requests.cancel(question.command_id, question.owner))


CANCEL = NodeCall("command.cancel", _answer_cancel, CancelQuestion, deadline_s=5.0)

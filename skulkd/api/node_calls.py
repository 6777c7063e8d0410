"""Calls from the API of one node to another: declared once, served and sent by the same class.

An `ApiError` of the other node is the same `ApiError` here. A node that is unknown is a 404, one
that does not answer a 502.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ValidationError

from skulkd.api.error_mapping import as_api_error
from skulkd.api.errors import ApiError
from skulkd.api.services import Services, services
from skulkd.peers import Asked, PeerError, PeerGone, PeerRefused, ask_others
from skulkd.store.errors import StoreError
from skulkd.wire.ids import NodeId

_HTTP = "http"
_CALLS: list[NodeCall] = []


class NodeCall:
    """`answer` gets the node that serves, and the question if there is one."""

    def __init__(
        self,
        name: str,
        answer: Callable[..., Awaitable[BaseModel | bytes]],
        question: type[BaseModel] | None = None,
        *,
        deadline_s: float,
    ) -> None:
        self.name = name
        self._answer = answer
        self._question = question
        self.deadline_s = deadline_s
        _CALLS.append(self)

    async def send(self, node: Services, to: NodeId, question: BaseModel | None = None) -> bytes:
        """The answer of that node. Raises PeerError."""
        body = _body(question)
        return await node.peers.ask(to, self.name, body, deadline_s=self.deadline_s)

    async def ask(
        self,
        node: Services,
        to: NodeId,
        question: BaseModel | None = None,
        *,
        unknown: str | None = None,
        deadline_s: float | None = None,
    ) -> bytes:
        """The answer of that node. Raises ApiError; `unknown` is the sentence of the 404."""
        limit_s = self.deadline_s if deadline_s is None else deadline_s
        try:
            return await node.peers.ask(to, self.name, _body(question), deadline_s=limit_s)
        except PeerGone as error:
            raise ApiError(404, unknown or f"Node not reachable: {to[:200]}") from error
        except PeerRefused as error:
            if error.kind == _HTTP:
                raise ApiError(int(json.loads(error.data)["status"]), str(error)) from error
            raise ApiError(502, str(error)) from error
        except PeerError as error:
            raise ApiError(502, str(error)) from error

    async def forward(
        self, request: web.Request, question: BaseModel | None = None, **options: Any
    ) -> bytes:
        """The answer of the node that the path names. Raises ApiError."""
        to = NodeId(request.match_info["node_id"])
        return await self.ask(services(request), to, question, **options)

    async def ask_others(self, node: Services, question: BaseModel | None = None) -> list[Asked]:
        """Every other node's answer, or why there is none."""
        body = _body(question)
        return await ask_others(node.peers, self.name, body, deadline_s=self.deadline_s)

    def serve(self, node: Services) -> None:
        me = node.peers.node_id

        async def handle(_asker: NodeId, body: bytes) -> bytes:
            try:
                answer = await self._call(node, body)
            except StoreError as error:
                raise PeerRefused(me, error.kind, error.message) from error
            except Exception as error:
                known = as_api_error(error)
                if known is None:
                    raise
                data = json.dumps({"status": known.status}).encode()
                raise PeerRefused(me, _HTTP, known.message, data) from error
            return answer if isinstance(answer, bytes) else answer.model_dump_json().encode()

        node.peers.serve(self.name, handle)

    async def _call(self, node: Services, body: bytes) -> BaseModel | bytes:
        if self._question is None:
            return await self._answer(node)
        try:
            # A newer node may send more than this one knows.
            question = self._question.model_validate_json(body, extra="ignore")
        except ValidationError as error:
            raise ApiError(422, str(error)) from error
        return await self._answer(node, question)


def serve_calls(node: Services) -> None:
    """From now on other nodes may call this one."""
    for call in _CALLS:
        call.serve(node)


def _body(question: BaseModel | None) -> bytes:
    return b"{}" if question is None else question.model_dump_json().encode()

"""`/v1/cluster/tokens`: create, list and revoke access tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from skulkd.api.audit import note
from skulkd.api.error_mapping import command_error
from skulkd.api.errors import ok
from skulkd.api.routes import RouteTable
from skulkd.api.services import services
from skulkd.peers import PeerRefused
from skulkd.wire.tokens import CreatedToken, CreateTokenRequest, RevokedToken, TokenList

routes = RouteTable("tokens")


@routes.get(
    "/v1/cluster/tokens",
    summary="The access tokens of the cluster, without the tokens themselves",
    scope="operate",
    answer=TokenList,
)
async def get_tokens(request: web.Request) -> web.Response:
    return ok((await services(request).tokens.list()).model_dump_json().encode())


@routes.post(
    "/v1/cluster/tokens",
    summary="Create an access token; the answer shows it, once",
    scope="operate",
    body=CreateTokenRequest,
    answer=CreatedToken,
    errors=(409, 503, 507),
)
async def post_token(request: web.Request, body: CreateTokenRequest) -> web.Response:
    note(name=body.name, scopes=",".join(body.scopes))
    with _refusals():
        created = await services(request).tokens.create(body)
    note(id=created.token_id)
    answer = ok(created.model_dump_json().encode())
    answer.headers["Cache-Control"] = "no-store"
    return answer


@routes.delete(
    "/v1/cluster/tokens/{token}",
    summary="Revoke an access token by name or id, on every node; its open requests end",
    scope="operate",
    answer=RevokedToken,
    counted=False,  # A token may revoke itself, and must hear of it.
    errors=(404, 409, 503, 507),
)
async def delete_token(request: web.Request) -> web.Response:
    with _refusals():
        revoked = await services(request).tokens.revoke(request.match_info["token"])
    note(name=revoked.name, id=revoked.token_id)
    return ok(revoked.model_dump_json().encode())


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except PeerRefused as refused:
        hints = json.loads(refused.data).get("hints", [])
        raise command_error(refused, {"kind": refused.kind, "hints": hints}) from refused

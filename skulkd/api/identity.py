"""Who this node is: `/node_id` and `/node/identity`."""

from __future__ import annotations

from aiohttp import web

from skulkd.api.errors import ok
from skulkd.api.routes import RouteTable
from skulkd.api.services import services
from skulkd.machine.network import primary_address
from skulkd.wire.identity import NodeIdentityAnswer

routes = RouteTable("identity")


@routes.get(
    "/node_id", scope="anyone", summary="The id of this node, new at every start", answer=str
)
async def get_node_id(request: web.Request) -> web.Response:
    # Peers probe with this all the time; an id needs no escaping.
    return ok(f'"{services(request).identity.node_id}"'.encode())


@routes.get(
    "/node/identity",
    scope="any",
    summary="Id, host name and address of this node",
    answer=NodeIdentityAnswer,
)
async def get_node_identity(request: web.Request) -> web.Response:
    node = services(request)
    network = node.state.current().node_network.get(node.identity.node_id)
    body = NodeIdentityAnswer(
        node_id=node.identity.node_id,
        hostname=node.identity.hostname,
        ip_address=(network and primary_address(network)) or node.identity.hostname,
    )
    return ok(body.model_dump_json().encode())

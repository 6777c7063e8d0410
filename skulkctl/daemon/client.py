"""The daemon as skulkctl sees it: every endpoint as one method, blocking or awaitable.

What an endpoint is stands in the module of its noun; here it only gets its name.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from skulkctl.daemon import load as work
from skulkctl.daemon import models as catalogue
from skulkctl.daemon import nodes, placement, requests
from skulkctl.daemon import storage as files
from skulkctl.daemon import tokens as access
from skulkctl.daemon.answers import Answer, is_missing_route
from skulkctl.daemon.calls import USUAL_S, Call, Endpoint, IsStock, Steps, request
from skulkctl.daemon.connection import AsyncConnection, Connection
from skulkctl.daemon.driving import drive, drive_async
from skulkd import SERVER_NAME

if TYPE_CHECKING:
    from skulkctl.contexts import Target

T = TypeVar("T")
Detail = Callable[[str], None]

_OWN_ROUTE = request("GET", nodes.MEMBERS_PATH)
"""Every skulkd has it and no stock node."""


@dataclass
class Peer:
    """What is known of the node at the other end of a connection."""

    endpoint: str | None = None
    is_stock: bool | None = None

    def heard(self, answer: Answer) -> None:
        """Another endpoint may be another kind of node; a proxy may hide the server's name."""
        if answer.endpoint != self.endpoint:
            self.endpoint, self.is_stock = answer.endpoint, None
        if (answer.header("server") or "").startswith(SERVER_NAME):
            self.is_stock = False

    def told_members(self, answer: Answer) -> None:
        """The answer to `_OWN_ROUTE`, which decides it."""
        self.heard(answer)
        if self.is_stock is None:
            self.is_stock = is_missing_route(answer)


class Endpoints:
    """Every call that skulkctl makes."""

    state = Endpoint(nodes.state)
    cluster = Endpoint(nodes.cluster)
    members = Endpoint(nodes.members)
    check_up = Endpoint(nodes.check_up)
    master = Endpoint(nodes.master)
    node_diagnostics = Endpoint(nodes.node_diagnostics)
    restart_node = Endpoint(nodes.restart_node)
    forget = Endpoint(nodes.forget)

    load = Endpoint(work.load)
    drain = Endpoint(work.drain)

    models = Endpoint(catalogue.models)
    add_card = Endpoint(catalogue.add_card)
    remove_card = Endpoint(catalogue.remove_card)

    previews = Endpoint(placement.previews)
    explain = Endpoint(placement.explain)
    place = Endpoint(placement.place)
    create = Endpoint(placement.create)
    delete = Endpoint(placement.delete)
    restart_runners = Endpoint(placement.restart_runners)
    can_restart_runners = Endpoint(placement.can_restart_runners)
    placements = Endpoint(placement.placements)

    tokens = Endpoint(access.tokens)

    cancel = Endpoint(requests.cancel)
    cancel_on_runner = Endpoint(requests.cancel_on_runner)

    storage = Endpoint(files.storage)
    tells_all_storage = Endpoint(files.tells_all_storage)
    purge = Endpoint(files.purge)
    store_health = Endpoint(files.store_health)
    store_registry = Endpoint(files.store_registry)
    store_downloads = Endpoint(files.store_downloads)
    pull = Endpoint(files.pull)
    pull_status = Endpoint(files.pull_status)
    delete_stored = Endpoint(files.delete_stored)


class Daemon(Endpoints):
    """Blocking, for commands. Without `limit_s`, every call has a limit of its own."""

    def __init__(
        self, target: Target, limit_s: float | None = None, detail: Detail = lambda text: None
    ) -> None:
        self._connection = Connection(target, detail)
        self._limit_s = limit_s
        self._peer = Peer()

    @property
    def endpoint(self) -> str:
        """The endpoint that answered last, or the first one."""
        return self._connection.dialer.endpoint

    @property
    def sent_change(self) -> bool:
        """Whether a request was sent that may have changed something."""
        return self._connection.sent_change

    def within(self, limit_s: float) -> Daemon:
        """The same connection with another limit for each answer."""
        other = copy.copy(self)
        other._limit_s = limit_s
        return other

    def prepare(self) -> None:
        """Import what a request needs, for callers that measure how long the daemon takes."""
        self._connection.prepare()

    def run(self, steps: Steps[T]) -> T:
        """The result of a described call. Raises CliError."""
        return drive(steps, self._perform)

    def _perform(self, step: Call[Any] | IsStock) -> Any:
        if isinstance(step, IsStock):
            if self._peer.is_stock is None:
                answer = self._connection.send(_OWN_ROUTE, self._limit_s or USUAL_S)
                self._peer.told_members(answer)
            return self._peer.is_stock
        answer = self._connection.send(step.request, self._limit_s or step.usual_s)
        self._peer.heard(answer)
        return step.read(answer)

    def close(self) -> None:
        self._connection.close()


class AsyncDaemon(Endpoints):
    """Awaitable, for the screens."""

    def __init__(
        self, target: Target, limit_s: float | None = None, detail: Detail = lambda text: None
    ) -> None:
        self._connection = AsyncConnection(target, detail)
        self._limit_s = limit_s
        self._peer = Peer()

    @property
    def endpoint(self) -> str:
        """The endpoint that answered last, or the first one."""
        return self._connection.dialer.endpoint

    async def run(self, steps: Steps[T]) -> T:
        """The result of a described call. Raises CliError."""
        return await drive_async(steps, self._perform)

    async def _perform(self, step: Call[Any] | IsStock) -> Any:
        if isinstance(step, IsStock):
            if self._peer.is_stock is None:
                answer = await self._connection.send(_OWN_ROUTE, self._limit_s or USUAL_S)
                self._peer.told_members(answer)
            return self._peer.is_stock
        answer = await self._connection.send(step.request, self._limit_s or step.usual_s)
        self._peer.heard(answer)
        return step.read(answer)

    async def close(self) -> None:
        await self._connection.close()

"""The daemon as skulkctl sees it: every endpoint as one method, blocking or awaitable.

The module of each noun describes its endpoints; here they only get their names.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from skulkctl.daemon import chat as chat_calls
from skulkctl.daemon import events as event_calls
from skulkctl.daemon import load as load_calls
from skulkctl.daemon import models as model_calls
from skulkctl.daemon import nodes, placement, requests, settings
from skulkctl.daemon import storage as storage_calls
from skulkctl.daemon import swarm as swarm_calls
from skulkctl.daemon import timeline as timeline_calls
from skulkctl.daemon import tokens as token_calls
from skulkctl.daemon import traces as trace_calls
from skulkctl.daemon import uploads as upload_calls
from skulkctl.daemon.answers import Answer, is_missing_route
from skulkctl.daemon.calls import USUAL_S, Call, Endpoint, IsStock, Steps, request, send
from skulkctl.daemon.connection import AsyncConnection, Connection
from skulkctl.daemon.driving import drive, drive_async
from skulkctl.daemon.streams import AsyncStream, Stream, StreamCall, StreamEndpoint
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

    def learn_from_members(self, answer: Answer) -> None:
        """The answer to `_OWN_ROUTE`, which decides it."""
        self.heard(answer)
        if self.is_stock is None:
            self.is_stock = is_missing_route(answer)


class Endpoints:
    """Every call that skulkctl makes."""

    send = Endpoint(send)

    state = Endpoint(nodes.state)
    cluster = Endpoint(nodes.cluster)
    members = Endpoint(nodes.members)
    check_up = Endpoint(nodes.check_up)
    master = Endpoint(nodes.master)
    ready = Endpoint(nodes.ready)
    node_diagnostics = Endpoint(nodes.node_diagnostics)
    restart_node = Endpoint(nodes.restart_node)
    forget = Endpoint(nodes.forget)

    load = Endpoint(load_calls.load)
    drain = Endpoint(load_calls.drain)

    models = Endpoint(model_calls.models)
    add_card = Endpoint(model_calls.add_card)
    remove_card = Endpoint(model_calls.remove_card)

    upload_place = Endpoint(upload_calls.upload_place)
    begin_upload = Endpoint(upload_calls.begin_upload)
    send_file = Endpoint(upload_calls.send_file)
    commit_upload = Endpoint(upload_calls.commit_upload)

    previews = Endpoint(placement.previews)
    explain = Endpoint(placement.explain)
    place = Endpoint(placement.place)
    create = Endpoint(placement.create)
    delete = Endpoint(placement.delete)
    restart_runners = Endpoint(placement.restart_runners)
    can_restart_runners = Endpoint(placement.can_restart_runners)
    placements = Endpoint(placement.placements)

    timeline = Endpoint(timeline_calls.timeline)
    capture = Endpoint(timeline_calls.capture)

    config = Endpoint(settings.config)
    put_config = Endpoint(settings.put_config)

    swarm = Endpoint(swarm_calls.swarm)
    swarm_plan = Endpoint(swarm_calls.swarm_plan)
    swarm_setup = Endpoint(swarm_calls.swarm_setup)
    swarm_enroll = Endpoint(swarm_calls.swarm_enroll)
    swarm_heartbeat = Endpoint(swarm_calls.swarm_heartbeat)
    swarm_pause = Endpoint(swarm_calls.swarm_pause)
    swarm_leave = Endpoint(swarm_calls.swarm_leave)

    tokens = Endpoint(token_calls.tokens)
    create_token = Endpoint(token_calls.create_token)
    revoke_token = Endpoint(token_calls.revoke_token)

    tracing = Endpoint(trace_calls.tracing)
    switch_tracing = Endpoint(trace_calls.switch_tracing)
    traces = Endpoint(trace_calls.traces)
    trace = Endpoint(trace_calls.trace)
    trace_file = Endpoint(trace_calls.trace_file)
    delete_traces = Endpoint(trace_calls.delete_traces)

    events = StreamEndpoint(event_calls.events)
    can_follow_events = Endpoint(event_calls.can_follow_events)
    logs = Endpoint(event_calls.logs)

    chat = StreamEndpoint(chat_calls.chat)
    cancel = Endpoint(requests.cancel)
    cancel_on_runners = Endpoint(requests.cancel_on_runners)

    storage = Endpoint(storage_calls.storage)
    tells_all_storage = Endpoint(storage_calls.tells_all_storage)
    purge = Endpoint(storage_calls.purge)
    store_health = Endpoint(storage_calls.store_health)
    store_registry = Endpoint(storage_calls.store_registry)
    store_downloads = Endpoint(storage_calls.store_downloads)
    pull = Endpoint(storage_calls.pull)
    pull_status = Endpoint(storage_calls.pull_status)
    delete_stored = Endpoint(storage_calls.delete_stored)


class Daemon(Endpoints):
    """Blocking, for commands. Without `limit_s`, every call has a limit of its own."""

    def __init__(
        self, target: Target, limit_s: float | None = None, detail: Detail = lambda text: None
    ) -> None:
        self._connection = Connection(target, detail)
        self._limit_s = limit_s
        self._detail = detail
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

    def at(self, endpoint: str) -> Daemon:
        """A connection of its own to one endpoint of the context; the caller closes it."""
        target = self._connection.dialer.target
        context = target.context._replace(endpoints=(endpoint,))
        return Daemon(target._replace(context=context), self._limit_s, self._detail)

    def prepare(self) -> None:
        """Import what a request needs, for callers that measure how long the daemon takes."""
        self._connection.prepare()

    def run(self, steps: Steps[T]) -> T:
        """The result of a described call. Raises CliError."""
        return drive(steps, self._perform)

    def open(self, steps: Steps[StreamCall[T]]) -> Stream[T]:
        """A described stream, when its answer has begun. Raises CliError."""
        described = self.run(steps)
        opened = self._connection.open(described.request, described.limits(self._limit_s))
        self._peer.heard(opened.head)
        if opened.head.ok:
            return Stream(opened, described.decoder(opened.head))
        try:
            raise described.error(opened.whole())
        finally:
            opened.close()

    def _perform(self, step: Call[Any] | IsStock) -> Any:
        if isinstance(step, IsStock):
            if self._peer.is_stock is None:
                answer = self._connection.send(_OWN_ROUTE, self._limit_s or USUAL_S)
                self._peer.learn_from_members(answer)
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

    def within(self, limit_s: float) -> AsyncDaemon:
        """The same connection with another limit for each answer."""
        other = copy.copy(self)
        other._limit_s = limit_s
        return other

    async def run(self, steps: Steps[T]) -> T:
        """The result of a described call. Raises CliError."""
        return await drive_async(steps, self._perform)

    async def open(self, steps: Steps[StreamCall[T]]) -> AsyncStream[T]:
        """A described stream, when its answer has begun. Raises CliError."""
        described = await self.run(steps)
        opened = await self._connection.open(described.request, described.limits(self._limit_s))
        self._peer.heard(opened.head)
        if opened.head.ok:
            return AsyncStream(opened, described.decoder(opened.head))
        try:
            raise described.error(await opened.whole())
        finally:
            await opened.close()

    async def _perform(self, step: Call[Any] | IsStock) -> Any:
        if isinstance(step, IsStock):
            if self._peer.is_stock is None:
                answer = await self._connection.send(_OWN_ROUTE, self._limit_s or USUAL_S)
                self._peer.learn_from_members(answer)
            return self._peer.is_stock
        answer = await self._connection.send(step.request, self._limit_s or step.usual_s)
        self._peer.heard(answer)
        return step.read(answer)

    async def close(self) -> None:
        await self._connection.close()

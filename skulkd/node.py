"""The composition root: runs the rooms of one node, and stops them.

`node_start` makes what a node is built from, `node_rooms` builds the rooms and connects them.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aiohttp import web

from skulkd import __version__
from skulkd.api.app import build_app
from skulkd.api.auth import is_loopback
from skulkd.api.lifecycle import Lifecycle
from skulkd.api.listen import BACKLOG, Address, Listener, stop_listening
from skulkd.api.protocol import ApiProtocol, protocol_factory
from skulkd.api.tls_listener import TlsListener
from skulkd.log import LogSystem, hide_values, start_logging
from skulkd.machine.redact import redact_text
from skulkd.node_rooms import build_rooms, build_services
from skulkd.node_start import Options, Start, StartError, prepare
from skulkd.node_tasks import start_tasks
from skulkd.node_tls import local_api
from skulkd.settings.local_api import write_local_api
from skulkd.supervision import EXIT_TASK_FAILED
from skulkd.swarm.service import SwarmService
from skulkd.wire.events import TracingStateChanged
from skulkd.wire.ids import NodeId
from skulkd.worker.options import StopSteps

__all__ = ["Options", "StartError", "run_daemon"]

FIRST_READINGS_DEADLINE_S = 3.0
STOP_LIMIT_S = 9.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long open requests get: to let the last answer out, to finish, to be failed."""

    answer_s: float
    grace_s: float
    abort_s: float


STOP = Pace(answer_s=0.0, grace_s=4.0, abort_s=1.0)
RESTART = Pace(answer_s=0.1, grace_s=0.3, abort_s=0.2)
# Runners are asked, then ended, after the last request: all of it fits the stop limit.
STOP_RUNNERS = StopSteps(ask_s=1.5, term_s=1.0, kill_s=0.5)
# After that nothing worth waiting for is left.
CLOSE_S = 0.1


def run_daemon(options: Options) -> int:
    """Run until told to stop; the exit code. Does not return when a restart was asked for."""
    start = prepare(options)
    started = start.settings.started
    logs = start_logging(
        level=options.log_level,
        redact=hide_values(redact_text, [start.secret.value, started.config.hf_token or ""]),
        json_hostname=started.hostname if started.config.logging.enabled else None,
    )
    node = Node(start, logs)
    try:
        again = asyncio.run(node.run())
    finally:
        logs.stop()
    if again is not None:
        _replace_process(again)
    return node.exit_code


class Node:
    """One running node: its rooms and its background tasks."""

    def __init__(self, start: Start, logs: LogSystem | None = None) -> None:
        self._start = start
        self._logs = logs
        self._signalled = False
        self._rooms = build_rooms(start, NodeId(f"node-{secrets.token_hex(8)}"))

    @property
    def exit_code(self) -> int:
        """Not 0 when the daemon ends because a task could not be kept running."""
        return EXIT_TASK_FAILED if self._rooms.tasks.failed and not self._signalled else 0

    async def run(self) -> list[str] | None:
        """Serve until stopped; the arguments of the next start when a restart was asked for."""
        lifecycle = Lifecycle(("readings", "listener"))
        rooms, sockets = self._rooms, self._start.sockets
        if rooms.settings.started.config.tracing.enabled:
            rooms.journal.append(TracingStateChanged(enabled=True))
        rooms.observe.start()
        services = build_services(rooms, lifecycle)
        self._handle_signals(lifecycle)
        runner = web.AppRunner(build_app(services), shutdown_timeout=CLOSE_S)
        await runner.setup()
        factory = protocol_factory(runner)
        servers = await self._listen(factory, lifecycle)
        lifecycle.mark_ready("listener")
        first = start_tasks(rooms, self._start, services, self._logs)
        await _wait(first, FIRST_READINGS_DEADLINE_S)
        # What start-up made lives as long as the process; looking at it again costs every request.
        gc.collect()
        gc.freeze()
        port: int = sockets[0].getsockname()[1]
        self._announce(Address(self._start.address.host, port))
        await lifecycle.stop_asked.wait()
        if rooms.tasks.failed:
            log.critical("stopping: background task %r keeps failing", rooms.tasks.failed)
            signal.setitimer(signal.ITIMER_REAL, STOP_LIMIT_S)
        await self._stop(lifecycle, runner, servers, services.swarm.service)
        restart = lifecycle.restart_pending and not self._signalled
        return self._next_arguments(port) if restart else None

    async def _listen(
        self, factory: Callable[[], ApiProtocol], lifecycle: Lifecycle
    ) -> list[Listener]:
        sockets, context = self._start.sockets, self._start.tls.api
        if context is not None:
            return [TlsListener(sock, factory, context, lifecycle.unheard) for sock in sockets]
        loop = asyncio.get_running_loop()
        return [await loop.create_server(factory, sock=sock, backlog=BACKLOG) for sock in sockets]

    def _announce(self, address: Address) -> None:
        tls = self._start.tls
        self._tell_local_clients(address)
        if self._start.secret.created:
            log.info(
                "created the cluster secret in %s: the other machines need a copy of this file",
                self._start.secret.origin.text,
            )
        for warning in self._start.secret.warnings:
            log.warning("%s", warning)
        if not is_loopback(self._start.address.host) and self._start.address.host != "localhost":
            log.info("other machines must send %s", self._credential())
            if tls.api is None:
                log.info(
                    "the API is plain HTTP, so what is sent can be read on the way; see api.tls"
                )
        store = self._start.settings.started.config.model_store
        if store is not None and store.enabled and tls.api is not None and tls.store is None:
            log.warning("the store is not encrypted: set cluster.tls, or api.tls.authority")
        log.info(
            "skulkd %s %s (%s) listening on %s",
            __version__,
            self._rooms.identity.node_id,
            self._rooms.identity.name,
            address.url(tls=tls.api is not None),
        )

    def _tell_local_clients(self, address: Address) -> None:
        settings = self._start.settings
        api = local_api(self._start.tls, settings.started, address)
        try:
            write_local_api(settings.sources.paths.local_api_file, api)
        except OSError as error:
            log.warning("skulkctl on this machine cannot be told where the API is: %s", error)

    def _credential(self) -> str:
        """What other machines need, in words."""
        if not self._start.settings.started.config.api.secret_for_operators:
            return "an access token: skulkctl token create"
        origin = self._start.secret.origin.text
        return f"an access token, or the cluster secret, which is in {origin}"

    def _handle_signals(self, lifecycle: Lifecycle) -> None:
        loop = asyncio.get_running_loop()

        def begin(name: str) -> None:
            log.info("%s received, stopping", name)
            lifecycle.ask_stop()

        def stop(number: int, _frame: object) -> None:
            if self._signalled:
                os._exit(128 + number)
            self._signalled = True
            # Whatever hangs, the event loop included, a supervisor must not have to kill us.
            signal.setitimer(signal.ITIMER_REAL, STOP_LIMIT_S)
            loop.call_soon_threadsafe(begin, signal.Signals(number).name)

        # Not the loop's own handlers: those would wait for a loop that hangs.
        signal.signal(signal.SIGALRM, lambda _number, _frame: os._exit(self.exit_code))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)

    async def _stop(
        self,
        lifecycle: Lifecycle,
        runner: web.AppRunner,
        servers: list[Listener],
        gateway_node: SwarmService,
    ) -> None:
        pace = RESTART if lifecycle.restart_pending and not self._signalled else STOP
        await asyncio.sleep(pace.answer_s)
        await stop_listening(servers)
        # Jobs of a gateway get the same grace as requests of clients.
        failed, _ = await asyncio.gather(
            lifecycle.drain(pace.grace_s, pace.abort_s),
            gateway_node.stop(pace.grace_s, pace.abort_s),
        )
        if failed:
            log.warning("%d requests were not finished and got a 503", failed)
        # Good-bye first: others should not wait for what this node no longer does.
        await self._rooms.cluster.leave()
        await self._rooms.tasks.stop()
        await self._rooms.worker.stop(STOP_RUNNERS)
        await self._rooms.store.stop()
        await runner.cleanup()
        self._rooms.monitor.close()
        await asyncio.to_thread(self._rooms.observe.stop)
        log.info("stopped")

    def _next_arguments(self, port: int) -> list[str]:
        """The same arguments; a port that the system chose is kept, clients know it."""
        chosen = [] if self._start.address.port else ["--api-port", str(port)]
        return [*sys.orig_argv[1:], *chosen]


def _replace_process(arguments: Sequence[str]) -> None:
    # A timer would outlive the change of image and end the new process.
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - our own arguments


async def _wait(event: asyncio.Event, deadline_s: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), deadline_s)
    except TimeoutError:
        log.warning("the first readings of this machine take longer than %g s", deadline_s)

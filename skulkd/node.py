"""One node, running: starts its background tasks, serves, and stops in order.

`node_start` reads settings and binds the port, `node_parts` builds the parts and connects them.
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
from skulkd.api.lifecycle import Lifecycle
from skulkd.api.listen import BACKLOG, ApiListener, stop_listening
from skulkd.api.protocol import ApiProtocol, protocol_factory
from skulkd.api.services import Services
from skulkd.api.tls_listener import TlsListener
from skulkd.api.tls_setup import local_api
from skulkd.cluster.accept_gate import admit_connections
from skulkd.cluster.fabric import FabricError
from skulkd.cluster.redial import keep_links
from skulkd.cluster.setup import run_cluster
from skulkd.log import LogSystem, hide_values, start_logging
from skulkd.machine.ports import Address, is_local
from skulkd.machine.redact import redact_text
from skulkd.node_parts import NodeParts
from skulkd.node_start import Options, Start, StartError, prepare
from skulkd.settings.local_api import remove_local_api, write_local_api
from skulkd.supervision import EXIT_TASK_FAILED, Supervised, keep_threads
from skulkd.wire.events import TracingStateChanged
from skulkd.wire.ids import NodeId
from skulkd.worker.options import StopSteps

__all__ = ["Options", "StartError", "run_daemon"]

FIRST_READINGS_DEADLINE_S = 3.0
STOP_LIMIT_S = 9.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StopTimes:
    """How long open requests get: to send the last answer, to finish, to be failed."""

    answer_s: float
    grace_s: float
    abort_s: float


STOP = StopTimes(answer_s=0.0, grace_s=4.0, abort_s=1.0)
RESTART = StopTimes(answer_s=0.1, grace_s=0.3, abort_s=0.2)
# Runners are asked, then ended, after the last request: all of it fits the stop limit.
STOP_RUNNERS = StopSteps(ask_s=1.5, term_s=1.0, kill_s=0.5)
# After that nothing worth waiting for is left.
CLOSE_S = 0.1
CLUSTER = "cluster"


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
    """One running node: its parts and its background tasks."""

    def __init__(self, start: Start, logs: LogSystem | None = None) -> None:
        self._start = start
        self._logs = logs
        self._signalled = False
        self._parts = NodeParts(start, NodeId(f"node-{secrets.token_hex(8)}"))

    @property
    def exit_code(self) -> int:
        """Not 0 when the daemon ends because a task could not be kept running."""
        return EXIT_TASK_FAILED if self._parts.tasks.failed and not self._signalled else 0

    async def run(self) -> list[str] | None:
        """Serve until stopped; the arguments of the next start when a restart was asked for."""
        lifecycle = Lifecycle(("readings", "listener"))
        parts, sockets = self._parts, self._start.sockets
        if self._start.settings.started.config.tracing.enabled:
            parts.journal.append(TracingStateChanged(enabled=True))
        parts.observe.start()
        services = parts.services(lifecycle)
        self._handle_signals(lifecycle)
        runner = web.AppRunner(build_app(services), shutdown_timeout=CLOSE_S)
        await runner.setup()
        factory = protocol_factory(runner)
        servers = await self._listen(factory, lifecycle)
        lifecycle.mark_ready("listener")
        first_readings = self._start_tasks(services)
        await _wait(first_readings, FIRST_READINGS_DEADLINE_S)
        # Objects of the start live as long as the process; the collector need not scan them.
        gc.collect()
        gc.freeze()
        port: int = sockets[0].getsockname()[1]
        self._announce(Address(self._start.address.host, port))
        await lifecycle.stop_asked.wait()
        if parts.tasks.failed:
            log.critical("stopping: background task %r keeps failing", parts.tasks.failed)
            signal.setitimer(signal.ITIMER_REAL, STOP_LIMIT_S)
        await self._stop(lifecycle, runner, servers)
        restart = lifecycle.restart_pending and not self._signalled
        if not restart:
            self._forget_local_clients()
        return self._next_arguments(port) if restart else None

    def _start_tasks(self, services: Services) -> asyncio.Event:
        """Start everything that runs until the daemon stops. Set after the first readings."""
        start, parts, lifecycle = self._start, self._parts, services.lifecycle
        tasks, config = parts.tasks, start.settings.started.config
        first_readings = asyncio.Event()

        def on_read() -> None:
            lifecycle.mark_ready("readings")
            first_readings.set()

        tasks.on_change(lambda task, problem: self._task_changed(lifecycle, task, problem))
        tasks.on_giving_up(lifecycle.ask_stop)
        tasks.start("readings", lambda: parts.report.run(on_read), essential=True)
        tasks.start("event loop lag", services.metrics.watch_loop)
        if start.worker:
            tasks.start("worker", parts.worker.run, essential=True)
        tasks.start(
            CLUSTER,
            lambda: run_cluster(parts.cluster, config),
            essential=True,
            external=(OSError, FabricError),
        )
        tasks.start("links", lambda: keep_links(parts.cluster, start.secret.origin.text))
        if parts.cluster.fabric.plan.tls is not None:
            tasks.start("joins", lambda: admit_connections(parts.cluster.fabric))
        tasks.start("traces", lambda: parts.observe.traces.delete_expired(start.settings))
        tasks.start("reach", parts.reachability.run)
        tasks.start("certificates", start.tls.watch.run)
        for name, work in parts.store.tasks().items():
            tasks.start(name, work)
        tasks.start("unloading", parts.unloads.run)
        tasks.start("gateway node", parts.swarm.service.run)
        logs = {} if self._logs is None else self._logs.threads()
        threads = {**parts.observe.threads(), **logs}
        tasks.start("threads", lambda: keep_threads(threads))
        return first_readings

    def _task_changed(self, lifecycle: Lifecycle, task: Supervised, problem: str) -> None:
        """Readiness depends on essential tasks only; all of them are in the node's health."""
        if task.name == CLUSTER:
            self._parts.cluster.down = problem
        if not task.essential:
            return
        part = f"background task {task.name}"
        if problem:
            lifecycle.mark_failed(part, f"it is down and is being restarted ({problem})")
        else:
            lifecycle.mark_ready(part)

    async def _listen(
        self, factory: Callable[[], ApiProtocol], lifecycle: Lifecycle
    ) -> list[ApiListener]:
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
        if not is_local(self._start.address.host):
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
            self._parts.identity.node_id,
            self._parts.identity.name,
            address.url(tls=tls.api is not None),
        )

    def _tell_local_clients(self, address: Address) -> None:
        settings = self._start.settings
        api = local_api(self._start.tls, settings.started, address, os.getpid())
        try:
            write_local_api(settings.sources.paths.local_api_file, api)
        except OSError as error:
            log.warning("skulkctl on this machine cannot be told where the API is: %s", error)

    def _forget_local_clients(self) -> None:
        file = self._start.settings.sources.paths.local_api_file
        try:
            remove_local_api(file, os.getpid())
        except OSError as error:
            log.warning("skulkctl on this machine still expects the API here: %s", error)

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
        servers: list[ApiListener],
    ) -> None:
        times = RESTART if lifecycle.restart_pending and not self._signalled else STOP
        await asyncio.sleep(times.answer_s)
        await stop_listening(servers)
        # Jobs of a gateway get the same grace as requests of clients.
        failed, _ = await asyncio.gather(
            lifecycle.drain(times.grace_s, times.abort_s),
            self._parts.swarm.service.stop(times.grace_s, times.abort_s),
        )
        if failed:
            log.warning("%d requests were not finished and got a 503", failed)
        # Leave the cluster first: others should not wait for what this node no longer does.
        await self._parts.cluster.leave()
        await self._parts.tasks.stop()
        await self._parts.worker.stop(STOP_RUNNERS)
        await self._parts.store.stop()
        await runner.cleanup()
        self._parts.monitor.close()
        await asyncio.to_thread(self._parts.observe.stop)
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

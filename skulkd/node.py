"""The composition root: builds the rooms of one node, connects them, runs, stops.

Prints nothing; a start that cannot be made is a `StartError` with its exit code.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import secrets
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from skulkd import __version__
from skulkd.api.app import build_app
from skulkd.api.auth import Policy, is_loopback, own_names
from skulkd.api.background import BackgroundTasks
from skulkd.api.dispatch import Dispatcher, Patience
from skulkd.api.inference import Inference
from skulkd.api.inference_metrics import InferenceCollector
from skulkd.api.journal import Journal
from skulkd.api.lifecycle import Lifecycle
from skulkd.api.listen import Address, ListenError, PortTaken, open_sockets
from skulkd.api.metrics import Metrics
from skulkd.api.model_shelf import ModelShelf
from skulkd.api.protocol import protocol_factory
from skulkd.api.running_settings import RunningSettings, Sources
from skulkd.api.services import Access, Identity, Services
from skulkd.cluster.replica import Replica
from skulkd.cluster.state_view import StateView
from skulkd.cluster.telemetry import Readings, Telemetry
from skulkd.log import hide_values, start_logging
from skulkd.machine.collect import MachineMonitor
from skulkd.machine.redact import redact_text
from skulkd.observe.event_log import EventLog
from skulkd.settings.paths import find_paths
from skulkd.settings.problems import SettingsError
from skulkd.settings.secret import ClusterSecret, cluster_secret
from skulkd.store.library import ModelLibrary
from skulkd.wire.config import parse_listen
from skulkd.wire.events import NodeGatheredInfo, TracingStateChanged
from skulkd.wire.gathered import NodeNetworkInterfaces
from skulkd.wire.ids import NodeId
from skulkd.worker.from_settings import worker_options
from skulkd.worker.options import StopSteps
from skulkd.worker.worker import Worker

EXIT_FAILED = 1
EXIT_PORT_TAKEN = 75
EXIT_BAD_SETTINGS = 78

READINGS_INTERVAL_S = 2.0
FIRST_READINGS_DEADLINE_S = 3.0
STOP_LIMIT_S = 9.0
OPEN_FILES = 65_535

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


class StartError(Exception):
    """The daemon cannot start; the lines are for the operator."""

    def __init__(self, exit_code: int, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.exit_code = exit_code
        self.lines = tuple(lines)


@dataclass(frozen=True, slots=True)
class Options:
    """The command line, as far as the node must know it."""

    flags: Mapping[str, object]
    config_file: Path | None = None
    api_port: int | None = None
    log_level: int = logging.INFO


def run_daemon(options: Options) -> int:
    """Run until told to stop; the exit code. Does not return when a restart was asked for."""
    settings = _load(options)
    address = Address(*parse_listen(settings.started.config.api.listen))
    try:
        secret = cluster_secret(settings.sources.paths, settings.started)
        sockets = open_sockets(address)
    except SettingsError as error:
        raise StartError(EXIT_BAD_SETTINGS, str(error).splitlines()) from error
    except PortTaken as error:
        raise StartError(EXIT_PORT_TAKEN, str(error).splitlines()) from error
    except ListenError as error:
        raise StartError(EXIT_FAILED, [str(error)]) from error
    _raise_open_files()
    config = settings.started.config
    logs = start_logging(
        level=options.log_level,
        redact=hide_values(redact_text, [secret.value, config.hf_token or ""]),
        json_hostname=settings.started.hostname if config.logging.enabled else None,
    )
    node = Node(settings, secret, address)
    try:
        again = asyncio.run(node.run(sockets))
    finally:
        logs.stop()
    if again is not None:
        _replace_process(again)
    return 0


def _load(options: Options) -> RunningSettings:
    environ = dict(os.environ)
    hostname = socket.gethostname()
    try:
        paths = find_paths(environ)
        sources = Sources(
            paths, environ, options.flags, options.config_file, hostname, Path(_cwd())
        )
        settings = sources.load()
        if options.api_port is not None:
            host, _ = parse_listen(settings.config.api.listen)
            listen = str(Address(host, options.api_port))
            sources = replace(sources, flags={**options.flags, "api.listen": listen})
            settings = sources.load()
    except SettingsError as error:
        raise StartError(EXIT_BAD_SETTINGS, str(error).splitlines()) from error
    return RunningSettings(settings, sources)


class SelfReport:
    """What this node tells of itself: readings as telemetry, changes of its network as events."""

    def __init__(
        self,
        node_id: NodeId,
        monitor: MachineMonitor,
        replica: Replica,
        telemetry: Telemetry,
        journal: Journal,
    ) -> None:
        self._node_id = node_id
        self._monitor = monitor
        self._replica = replica
        self._telemetry = telemetry
        self._journal = journal

    async def read_once(self) -> None:
        """One look at the machine. The first also makes the node known to the state."""
        found = await self._monitor.read()
        now = datetime.now(UTC)
        known = self._replica.state.node_network.get(self._node_id)
        if known is None or (found.network is not None and known != found.network):
            interfaces = found.network.interfaces if found.network is not None else []
            info = NodeNetworkInterfaces(interfaces=interfaces)
            self._journal.append(NodeGatheredInfo(node_id=self._node_id, when=now, info=info))
        readings = Readings(
            now, found.memory, found.disk, found.system, found.identity, found.warnings
        )
        self._telemetry.record(self._node_id, readings)

    async def keep_reading(self, lifecycle: Lifecycle, first: asyncio.Event) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.read_once()
            lifecycle.mark_ready("readings")
            first.set()
            await asyncio.sleep(READINGS_INTERVAL_S)

    def figures(self) -> dict[str, float]:
        """The latest readings for Prometheus; what was not read is not there."""
        readings = self._telemetry.of(self._node_id)
        figures: dict[str, float] = {}
        if readings is not None and readings.memory is not None:
            figures["memory_total_bytes"] = readings.memory.ram_total.in_bytes
            figures["memory_available_bytes"] = readings.memory.ram_available.in_bytes
        if readings is not None and readings.disk is not None:
            figures["disk_total_bytes"] = readings.disk.total.in_bytes
            figures["disk_available_bytes"] = readings.disk.available.in_bytes
        return figures


class Node:
    """One running node: its rooms and its background tasks."""

    def __init__(self, settings: RunningSettings, secret: ClusterSecret, address: Address) -> None:
        self._secret = secret
        self._address = address
        self._signalled = False
        self._settings = settings
        started = settings.started
        name = started.node_name
        self._node_id = NodeId(f"node-{secrets.token_hex(8)}")
        self._monitor = MachineMonitor(
            name=name, models_dir=settings.sources.paths.models, version=__version__
        )
        self._replica = Replica()
        self._telemetry = Telemetry()
        self._events = EventLog()
        self._journal = Journal(self._events, self._replica)
        self._report = SelfReport(
            self._node_id, self._monitor, self._replica, self._telemetry, self._journal
        )
        self._library = ModelLibrary(settings.sources.paths, settings.sources.environ)
        self._worker = Worker(
            node_id=self._node_id,
            state=lambda: self._replica.state,
            publish=self._journal.append,
            library=self._library,
            log_dir=settings.sources.paths.log_file.parent,
            options=worker_options(started.config.runtime),
            environ=settings.sources.environ,
        )
        self._journal.on_change(self._worker.notify)
        self._identity = Identity(self._node_id, name, started.hostname, __version__, _cwd())
        self._policy = Policy(
            secret=secret.value,
            own_names=own_names(started.hostname, name),
            token_on_loopback=started.config.api.token_on_loopback,
            cors_origins=frozenset(started.config.api.cors_origins),
        )

    async def run(self, sockets: Sequence[socket.socket]) -> list[str] | None:
        """Serve until stopped; the arguments of the next start when a restart was asked for."""
        lifecycle = Lifecycle(("readings", "listener"))
        if self._settings.started.config.tracing.enabled:
            self._journal.append(TracingStateChanged(enabled=True))
        services = self._services(lifecycle)
        self._handle_signals(lifecycle)
        runner = web.AppRunner(build_app(services), shutdown_timeout=CLOSE_S)
        await runner.setup()
        loop = asyncio.get_running_loop()
        factory = protocol_factory(runner)
        servers = [await loop.create_server(factory, sock=sock) for sock in sockets]
        lifecycle.mark_ready("listener")
        first = asyncio.Event()
        background = BackgroundTasks(lifecycle)
        background.start("readings", self._report.keep_reading(lifecycle, first))
        background.start("event loop lag", services.metrics.watch_loop())
        background.start("worker", self._worker.run())
        await _wait(first, FIRST_READINGS_DEADLINE_S)
        # What start-up made lives as long as the process; looking at it again costs every request.
        gc.collect()
        gc.freeze()
        port: int = sockets[0].getsockname()[1]
        self._announce(Address(self._address.host, port))
        await lifecycle.stop_asked.wait()
        await self._stop(lifecycle, background, runner, servers)
        restart = lifecycle.restart_pending and not self._signalled
        return self._next_arguments(port) if restart else None

    def _services(self, lifecycle: Lifecycle) -> Services:
        metrics = Metrics(__version__, self._report.figures)
        inference = self._inference()
        places = self._settings.started.config.runtime.max_concurrent_requests
        metrics.registry.register(InferenceCollector(inference, places))
        return Services(
            identity=self._identity,
            access=Access(self._policy),
            settings=self._settings,
            monitor=self._monitor,
            replica=self._replica,
            telemetry=self._telemetry,
            state=StateView(self._replica, self._telemetry),
            events=self._events,
            lifecycle=lifecycle,
            metrics=metrics,
            inference=inference,
        )

    def _inference(self) -> Inference:
        patience = Patience(waiting_limit=self._settings.started.config.runtime.queue)
        dispatcher = Dispatcher(
            self._node_id, lambda: self._replica.state, self._journal, self._worker, patience
        )
        models = ModelShelf(self._settings.sources.paths, self._library)
        return Inference(self._worker, self._journal, models, dispatcher)

    def _announce(self, address: Address) -> None:
        for warning in self._secret.warnings:
            log.warning("%s", warning)
        if not is_loopback(self._address.host) and self._address.host != "localhost":
            log.info(
                "other machines must send the cluster secret, which is in %s",
                self._secret.origin.text,
            )
        log.info(
            "skulkd %s %s (%s) listening on %s",
            __version__,
            self._node_id,
            self._identity.name,
            address.url,
        )

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
        signal.signal(signal.SIGALRM, lambda _number, _frame: os._exit(0))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)

    async def _stop(
        self,
        lifecycle: Lifecycle,
        background: BackgroundTasks,
        runner: web.AppRunner,
        servers: list[asyncio.Server],
    ) -> None:
        pace = RESTART if lifecycle.restart_pending and not self._signalled else STOP
        await asyncio.sleep(pace.answer_s)
        for server in servers:
            server.close()
        failed = await lifecycle.drain(pace.grace_s, pace.abort_s)
        if failed:
            log.warning("%d requests were not finished and got a 503", failed)
        await background.stop()
        await self._worker.stop(STOP_RUNNERS)
        await runner.cleanup()
        self._monitor.close()
        log.info("stopped")

    def _next_arguments(self, port: int) -> list[str]:
        """The same arguments; a port that the system chose is kept, clients know it."""
        chosen = [] if self._address.port else ["--api-port", str(port)]
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


def _raise_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _cwd() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""

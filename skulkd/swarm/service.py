"""The gateway node of a daemon: enrols, works, pauses, leaves, and reports its status.

Idle until it is enrolled. Commands change the enrolment one at a time; a session that fails is
started again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from skulkd.swarm.agents import Agent
from skulkd.swarm.answers import is_header_token
from skulkd.swarm.capabilities import Probed
from skulkd.swarm.catalog import exposed_slugs
from skulkd.swarm.claims import Claims
from skulkd.swarm.enrolment import Enrolment
from skulkd.swarm.errors import Busy, ConfigError, GatewayError, NotEnrolled
from skulkd.swarm.gateway import Gateway, check_gateway_url
from skulkd.swarm.generic_jobs import GenericJobs
from skulkd.swarm.job_book import JobBook
from skulkd.swarm.jobs import Clocks, Executor
from skulkd.swarm.node_config import (
    NodeConfig,
    Setup,
    bootstrap_body,
    enrolled_from,
    setup_config,
)
from skulkd.swarm.node_files import NodeFiles
from skulkd.swarm.relay import kept_relay, relay_of
from skulkd.swarm.restarts import restart_on_failure
from skulkd.swarm.script_values import iso_time, machine_fingerprint
from skulkd.swarm.session import Parts, Session
from skulkd.swarm.status import Facts, Supervision, configured_status, unconfigured_status
from skulkd.swarm.telemetry import Counters, Machine, Report

PAUSED = "paused"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Host:
    """What the daemon lends to its gateway node."""

    version: str
    hostname: str
    environ: Mapping[str, str]
    agents: Callable[[], Sequence[Agent]]
    executor: Executor
    draining: Callable[[], bool]
    probed: Callable[[NodeConfig], Probed]
    machine: Callable[[], Machine]
    clocks: Clocks
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    generic_runners: frozenset[str] = frozenset()
    """The kinds of generic work that the owner allows."""


async def _idle() -> None:
    await asyncio.Event().wait()


class SwarmService:
    """At most one enrolment, and the session that serves it."""

    def __init__(self, files: NodeFiles, host: Host, claims: Callable[[JobBook], Claims]) -> None:
        self._files = files
        self._host = host
        self._enrolment = Enrolment(files, host.environ)
        self.counters = Counters(host.clocks.wall)
        self._book = JobBook(files.jobs_dir)
        self._claims = claims(self._book)
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()
        self._session: Session | None = None
        self._old: list[Session] = []
        self._supervision = Supervision()
        self._generic: GenericJobs | None = None
        self._stopping = False

    # Work

    async def run(self) -> None:
        """Serve whatever enrolment there is, until cancelled. A session that fails is restarted."""
        try:
            async with self._http() as http:
                await restart_on_failure(
                    lambda: self._serve_once(http),
                    self._session_failed,
                    self._wait_or_changed,
                    self._host.clocks.monotonic,
                )
        except Exception as error:
            self._supervision.ended = f"{type(error).__name__}: {error}"
            raise
        finally:
            await self._end_sessions(0.0, 0.0)

    async def stop(self, grace_s: float, abort_s: float) -> None:
        """Before the end of the process: take no more jobs, let those that run finish."""
        self._stopping = True
        await self._end_sessions(grace_s, abort_s)

    async def _end_sessions(self, grace_s: float, abort_s: float) -> None:
        sessions = [session for session in (self._session, *self._old) if session is not None]
        ended = [session.stop(grace_s, abort_s) for session in sessions]
        await asyncio.gather(*ended, return_exceptions=True)

    async def _serve_once(self, http: aiohttp.ClientSession) -> None:
        """One session, until the enrolment changes. Raises whatever ends the session."""
        self._changed.clear()
        await self._enroll_by_environment()
        session = self._session = None if self._stopping else self._open(http)
        self._supervision.failing = False
        wait = asyncio.ensure_future(self._changed.wait())
        work = asyncio.ensure_future(_idle() if session is None else session.run())
        try:
            await asyncio.wait({wait, work}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()  # a session does not end by itself, so this raises
        finally:
            wait.cancel()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            self._old = [old for old in self._old if not old.idle]
            if session is not None and not session.idle:
                # Its jobs go on and deliver their results; it takes no more.
                self._old.append(session)
            self._session = None

    def _session_failed(self, error: Exception) -> None:
        cause = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
        log.error("the gateway session failed and is restarted", exc_info=error)
        found = self._supervision
        found.restarts += 1
        found.failing = True
        found.last_failure = f"{type(cause).__name__}: {cause}"[:200]
        found.last_failure_at = iso_time(self._host.clocks.wall())

    async def _wait_or_changed(self, seconds: float) -> None:
        sleep = asyncio.ensure_future(self._host.sleep(seconds))
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({sleep, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            changed.cancel()

    async def _enroll_by_environment(self) -> None:
        """A node that was given a one-time token in its environment changes it at the start."""
        try:
            config = self._enrolment.config()
            if config is not None:
                await self._enroll_if_needed(config)
        except ConfigError as error:
            log.warning("the gateway node cannot be started: %s", error)
            self._supervision.problem = str(error)
        except GatewayError as error:
            log.warning("this node could not be enrolled: %s", error)
            self._supervision.problem = str(error)

    def _open(self, http: aiohttp.ClientSession) -> Session | None:
        try:
            config = self._enrolment.config()
            token = self._enrolment.token(config)
            state = self._files.read_state()
        except ConfigError as error:
            if self._supervision.problem != str(error):
                log.warning("the gateway node does not work: %s", error)
            self._supervision.problem = str(error)
            return None
        self._supervision.problem = None
        if config is None or token is None or state.get(PAUSED) is True:
            return None
        return Session(self._parts(config, state, http))

    def _parts(
        self, config: NodeConfig, state: Mapping[str, Any], http: aiohttp.ClientSession
    ) -> Parts:
        host = self._host
        base_url = config.gateway_base_url
        relay = relay_of(base_url, state)
        gateway = Gateway(base_url, http, config.request_timeout_ms / 1000, relay)
        version = state.get("config_version")
        return Parts(
            config=config,
            config_version=version if isinstance(version, int) else None,
            version=host.version,
            gateway=gateway,
            token=lambda: self._enrolment.token(config) or "",
            agents=host.agents,
            executor=host.executor,
            draining=host.draining,
            probed=lambda: host.probed(config),
            machine=host.machine,
            book=self._book,
            claims=self._claims,
            counters=self.counters,
            clocks=host.clocks,
            sleep=host.sleep,
            runs=lambda job_id: job_id in self.running(),
        )

    def notify(self) -> None:
        """Drain or models have changed."""
        if self._session is not None:
            self._session.notify()

    # The owner's commands; all raise ConfigError and GatewayError

    async def setup(self, api_key: str, options: Mapping[str, Any]) -> Report:
        """Make this node known with an owner's key, which is not kept; one heartbeat at once."""
        if not is_header_token(api_key):
            raise ConfigError("apiKey must be 1 to 4096 visible ASCII characters without spaces")
        async with self._lock:
            wanted = self.planned(options)
            fingerprint = machine_fingerprint(await asyncio.to_thread(self._files.machine_id))
            body = bootstrap_body(wanted, fingerprint, self._host.version)
            async with self._gateway(wanted.gateway_base_url, wanted.request_timeout_ms) as gateway:
                answer = await gateway.bootstrap(api_key, body)
            await self._keep(wanted, answer, None, fingerprint)
        return await self.run_once()

    async def enroll(self, node_id: str, token: str, options: Mapping[str, Any]) -> Report:
        """Change a one-time token for a runtime token."""
        async with self._lock:
            wanted = self.planned(options)
            async with self._gateway(wanted.gateway_base_url, wanted.request_timeout_ms) as gateway:
                answer = await gateway.enroll({"node_id": node_id, "enrollment_token": token})
            await self._keep(wanted, answer, node_id, None)
        return {"enrolled": True, "node_id": node_id, "state_path": str(self._files.state_file)}

    def planned(self, options: Mapping[str, Any]) -> Setup:
        """What a set-up with these options would do."""
        wanted = setup_config(options, self._host.environ, self._host.hostname)
        check_gateway_url(wanted.gateway_base_url)
        return wanted

    async def _keep(
        self, wanted: Setup, answer: Mapping[str, Any], node_id: str | None, fingerprint: str | None
    ) -> None:
        enrolled = enrolled_from(answer, node_id)
        identity = (fingerprint, self._host.version, iso_time(self._host.clocks.wall()))
        await self._enrolment.keep(wanted, enrolled, kept_relay(answer), identity)
        self._changed.set()

    async def run_once(self) -> Report:
        """One heartbeat, whether the node is paused or not."""
        async with self._http() as http:
            config, state = self._enrolment.required()
            enrolled = await self._enroll_if_needed(config)
            if self._enrolment.token(config) is None:
                raise NotEnrolled("this node has no runtime token")
            report = await Session(self._parts(config, state, http)).heartbeat()
        return {**report, "enrolled": enrolled}

    async def _enroll_if_needed(self, config: NodeConfig) -> bool:
        if self._enrolment.token(config) is not None or config.enrollment_token is None:
            return False
        options = {"gateway": config.gateway_base_url, "server-name": config.server_name}
        await self.enroll(config.node_id, config.enrollment_token, options)
        return True

    async def pause(self, *, paused: bool) -> None:
        """Stop asking for work, or ask again; what runs is finished. Kept over restarts."""
        async with self._lock:
            _, state = self._enrolment.required()
            await asyncio.to_thread(self._files.write_state, {**state, PAUSED: paused})
        self._changed.set()

    async def leave(self, *, force: bool) -> Report:
        """Tell the gateway if it can be reached, then forget the enrolment.

        Raises Busy while jobs run or results are owed, which would then be lost. With `force`
        files that cannot be used are deleted like others.
        """
        async with self._lock:
            config = self._config_to_leave(force=force)
            if not force:
                self._check_nothing_lost()
            notified = await self._say_goodbye(config)
            await asyncio.to_thread(self._files.forget)
            await asyncio.to_thread(self._book.clear)
        self._changed.set()
        node_id = None if config is None else config.node_id
        return {"left": True, "node_id": node_id, "gateway_notification": notified}

    def _config_to_leave(self, *, force: bool) -> NodeConfig | None:
        try:
            return self._enrolment.required()[0]
        except ConfigError:
            if not force:
                raise
            return None

    def _check_nothing_lost(self) -> None:
        running, owed = len(self.running()), self.owed()
        if running or owed:
            raise Busy(f"{running} jobs run and {owed} results are not delivered")

    async def _say_goodbye(self, config: NodeConfig | None) -> Report:
        if config is None:
            return {"notified": False, "error": "the stored enrolment cannot be used"}
        body = {
            "node_id": config.node_id,
            "reason": "node_uninstall",
            "source": "mswarm_node_uninstall",
            "node_version": self._host.version,
            "service_manager": "skulkd",
        }
        try:
            token = self._enrolment.token(config)
            if token is None:
                return {"notified": False}
            async with self._gateway(config.gateway_base_url, config.request_timeout_ms) as gateway:
                return {"notified": True, "response": await gateway.uninstall(token, body)}
        except (ConfigError, GatewayError) as error:
            return {"notified": False, "error": str(error)}

    async def run_generic(self, envelope: Mapping[str, Any]) -> Report:
        """A job that is no chat, brought by the owner's own tools. Raises NotEnrolled."""
        config, _ = self._enrolment.required()
        if self._generic is None or self._generic.config != config:
            self._generic = GenericJobs(
                config,
                self._host.generic_runners,
                self.counters,
                self._host.clocks,
                self._files.artifacts_dir,
            )
        return await self._generic.execute(envelope)

    def cancel_generic(self, job_id: str) -> bool:
        """Whether such a job ran."""
        return self._generic is not None and self._generic.cancel(job_id)

    # Status

    def config(self) -> NodeConfig | None:
        """What was set up, or None; never an error: `status` tells of those."""
        try:
            return self._enrolment.config()
        except ConfigError:
            return None

    def owed(self) -> int:
        """Results that the gateway has not taken yet."""
        return len(self._book.owed())

    def running(self) -> dict[str, str]:
        """Jobs that are here, by id, with agent or model."""
        sessions = [session for session in (*self._old, self._session) if session is not None]
        return {job: what for session in sessions for job, what in session.standing.running.items()}

    def status(self) -> Report:
        """For people and for `doctor`; no secret is in it."""
        problems = list(self._files.too_open())
        try:
            config, state = self._enrolment.config(), self._files.read_state()
        except ConfigError as error:
            return unconfigured_status(self._book, [str(error)])
        if config is None:
            return unconfigured_status(self._book, [])
        try:
            has_token = self._enrolment.token(config) is not None
        except ConfigError as error:
            has_token = False
            problems.append(str(error))
        return configured_status(
            Facts(
                config=config,
                paused=state.get(PAUSED) is True,
                has_token=has_token,
                session=self._session,
                supervision=self._supervision,
                book=self._book,
                running=self.running(),
                models=exposed_slugs(self._host.agents(), config.exposure),
                file_problems=problems,
            )
        )

    @asynccontextmanager
    async def _http(self) -> AsyncIterator[aiohttp.ClientSession]:
        agent = {"user-agent": f"skulkd/{self._host.version}"}
        # What was not asked for compressed is not unpacked either.
        async with aiohttp.ClientSession(headers=agent, auto_decompress=False) as http:
            yield http

    @asynccontextmanager
    async def _gateway(self, base_url: str, timeout_ms: int) -> AsyncIterator[Gateway]:
        async with self._http() as http:
            yield Gateway(base_url, http, timeout_ms / 1000)

"""The gateway node of a daemon: enrols, works, pauses, leaves, and says how it stands.

Idle until it is enrolled. One at a time changes the enrolment; the work follows.
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
from skulkd.swarm.capabilities import Probed
from skulkd.swarm.claims import Claims
from skulkd.swarm.gateway import Gateway, GatewayError, check_gateway_url
from skulkd.swarm.generic_jobs import GenericJobs
from skulkd.swarm.job_book import JobBook
from skulkd.swarm.jobs import Clocks, Executor
from skulkd.swarm.node_config import (
    ConfigError,
    Enrolled,
    NodeConfig,
    Setup,
    State,
    bootstrap_body,
    enrolled_from,
    node_config,
    setup_config,
    state_after,
)
from skulkd.swarm.node_files import NodeFiles
from skulkd.swarm.relay import kept_relay, relay_of
from skulkd.swarm.script_values import first_text, iso_time, machine_fingerprint
from skulkd.swarm.session import Parts, Session, Standing
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


class NotEnrolled(Exception):
    """There is no enrolment to work with."""


class Busy(Exception):
    """Leaving now would lose work."""


async def _idle() -> None:
    await asyncio.Event().wait()


class SwarmService:
    """At most one enrolment, and the session that serves it."""

    def __init__(self, files: NodeFiles, host: Host, claims: Callable[[JobBook], Claims]) -> None:
        self._files = files
        self._host = host
        self.counters = Counters(host.clocks.wall)
        self._book = JobBook(files.jobs_dir)
        self._claims = claims(self._book)
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()
        self._session: Session | None = None
        self._old: list[Session] = []
        self._problem: str | None = None
        self._generic: GenericJobs | None = None

    # Work

    async def run(self) -> None:
        """Serve whatever enrolment there is, until cancelled."""
        async with self._http() as http:
            try:
                while True:
                    self._changed.clear()
                    await self._enroll_by_environment()
                    await self._serve_until_changed(http)
            finally:
                ended = [session.stop(0.0) for session in (self._session, *self._old) if session]
                await asyncio.gather(*ended, return_exceptions=True)

    async def _serve_until_changed(self, http: aiohttp.ClientSession) -> None:
        session = self._session = self._open(http)
        wait = asyncio.ensure_future(self._changed.wait())
        work = asyncio.ensure_future(_idle() if session is None else session.run())
        try:
            await asyncio.wait({wait, work}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()  # a session has no end of its own: this raises
        finally:
            wait.cancel()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        self._old = [old for old in self._old if not old.idle]
        if session is not None:
            # Its jobs go on and deliver their results; it asks for no more.
            self._old.append(session)
        self._session = None

    async def _enroll_by_environment(self) -> None:
        """A node that was given a one-time token in its environment changes it at the start."""
        try:
            config = self._config()
            if config is not None:
                await self._enroll_if_needed(config)
        except (ConfigError, GatewayError) as error:
            log.warning("this node could not be enrolled: %s", error)
            self._problem = str(error)

    def _open(self, http: aiohttp.ClientSession) -> Session | None:
        try:
            config = self._config()
            token = self._token(config)
            state = self._files.read_state()
        except ConfigError as error:
            if self._problem != str(error):
                log.warning("the gateway node does not work: %s", error)
            self._problem = str(error)
            return None
        self._problem = None
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
            token=lambda: self._token(config) or "",
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
        )

    def notify(self) -> None:
        """Drain or models have changed."""
        if self._session is not None:
            self._session.notify()

    # The owner's commands; all raise ConfigError and GatewayError

    async def setup(self, api_key: str, options: Mapping[str, Any]) -> Report:
        """Make this node known with an owner's key, which is not kept; one heartbeat at once."""
        async with self._lock:
            wanted = setup_config(options, self._host.environ, self._host.hostname)
            check_gateway_url(wanted.gateway_base_url)
            fingerprint = machine_fingerprint(await asyncio.to_thread(self._files.machine_id))
            body = bootstrap_body(wanted, fingerprint, self._host.version)
            async with self._gateway(wanted.gateway_base_url, wanted.request_timeout_ms) as gateway:
                answer = await gateway.bootstrap(api_key, body)
            await self._keep(wanted, enrolled_from(answer), kept_relay(answer), fingerprint)
        return await self.run_once()

    async def enroll(self, node_id: str, token: str, options: Mapping[str, Any]) -> Report:
        """Change a one-time token for a runtime token."""
        async with self._lock:
            wanted = setup_config(options, self._host.environ, self._host.hostname)
            check_gateway_url(wanted.gateway_base_url)
            async with self._gateway(wanted.gateway_base_url, wanted.request_timeout_ms) as gateway:
                answer = await gateway.enroll({"node_id": node_id, "enrollment_token": token})
            await self._keep(wanted, enrolled_from(answer, node_id), kept_relay(answer), None)
        return {"enrolled": True, "node_id": node_id, "state_path": str(self._files.state_file)}

    async def run_once(self) -> Report:
        """One heartbeat, whether the node is paused or not."""
        async with self._http() as http:
            config, state = self._enrolment()
            enrolled = await self._enroll_if_needed(config)
            if self._token(config) is None:
                raise NotEnrolled("this node has no runtime token")
            report = await Session(self._parts(config, state, http)).heartbeat()
        return {**report, "enrolled": enrolled}

    async def _enroll_if_needed(self, config: NodeConfig) -> bool:
        if self._token(config) is not None or config.enrollment_token is None:
            return False
        options = {"gateway": config.gateway_base_url, "server-name": config.server_name}
        await self.enroll(config.node_id, config.enrollment_token, options)
        return True

    async def pause(self, *, paused: bool) -> None:
        """Stop asking for work, or ask again; what runs is finished. Kept over restarts."""
        async with self._lock:
            _, state = self._enrolment()
            await asyncio.to_thread(self._files.write_state, {**state, PAUSED: paused})
        self._changed.set()

    async def leave(self, *, force: bool) -> Report:
        """Tell the gateway if it can be reached, then forget the enrolment.

        Raises Busy while jobs run or results are owed, which would then be lost.
        """
        async with self._lock:
            config, _ = self._enrolment()
            if not force:
                self._check_nothing_lost()
            token = self._token(config)
            notified: Report = {"notified": False}
            if token is not None:
                notified = await self._say_goodbye(config, token)
            await asyncio.to_thread(self._files.forget)
            await asyncio.to_thread(self._book.clear)
        self._changed.set()
        return {"left": True, "node_id": config.node_id, "gateway_notification": notified}

    def _check_nothing_lost(self) -> None:
        running, owed = len(self.running()), self.owed()
        if running or owed:
            raise Busy(f"{running} jobs run and {owed} results are not delivered")

    async def _say_goodbye(self, config: NodeConfig, token: str) -> Report:
        body = {
            "node_id": config.node_id,
            "reason": "node_uninstall",
            "source": "mswarm_node_uninstall",
            "node_version": self._host.version,
            "service_manager": "skulkd",
        }
        try:
            async with self._gateway(config.gateway_base_url, config.request_timeout_ms) as gateway:
                return {"notified": True, "response": await gateway.uninstall(token, body)}
        except GatewayError as error:
            return {"notified": False, "error": str(error)}

    async def run_generic(self, envelope: Mapping[str, Any]) -> Report:
        """A job that is no chat, brought by the owner's own tools. Raises NotEnrolled."""
        config, _ = self._enrolment()
        if self._generic is None or self._generic.config != config:
            self._generic = GenericJobs(
                config,
                self._host.generic_runners,
                self.counters,
                self._host.clocks,
                self._files.artifacts_dir,
            )
        return await self._generic.execute(envelope)

    # How it stands

    def config(self) -> NodeConfig | None:
        """What was set up, or None; never an error: `status` tells of those."""
        try:
            return self._config()
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
        try:
            config, state = self._config(), self._files.read_state()
            token = self._token(config)
        except ConfigError as error:
            return {"configured": False, "problems": [str(error)], "owed_results": 0}
        standing = self._session.standing if self._session is not None else Standing()
        if config is None:
            return {"configured": False, "problems": [], "owed_results": self.owed()}
        return {
            "configured": True,
            "node_id": config.node_id,
            "server_name": config.server_name,
            "gateway_base_url": config.gateway_base_url,
            "relay_mode": config.relay_mode,
            "state": self._state_word(state, token),
            "last_heartbeat_at": standing.last_heartbeat,
            "heartbeat_error": standing.heartbeat_error,
            "poll_error": standing.poll_error,
            "running_jobs": self.running(),
            "jobs_done": standing.jobs_done,
            "jobs_failed": standing.jobs_failed,
            "owed_results": self.owed(),
            "max_concurrent_jobs": config.max_jobs,
            "max_concurrent_llm_jobs": config.max_llm_jobs,
            "generic_jobs_enabled": config.generic_enabled,
            "hardware_telemetry_enabled": config.hardware,
            "load_reporting_enabled": config.load_reporting,
            "models": [agent["slug"] for agent in self._host.agents()],
            "problems": self._problems(standing, token),
        }

    def _state_word(self, state: Mapping[str, Any], token: str | None) -> str:
        if token is None:
            return "no token"
        if state.get(PAUSED) is True:
            return "paused"
        return "starting" if self._session is None else self._session.poll_reason()

    def _problems(self, standing: Standing, token: str | None) -> list[str]:
        found = list(self._files.too_open())
        if token is None:
            found.append("there is no runtime token; run: skulkctl swarm setup")
        if standing.retired:
            found.append("the gateway has retired this node's credentials (410)")
        elif standing.heartbeat_error:
            found.append(f"the last heartbeat failed: {standing.heartbeat_error}")
        if owed := self.owed():
            found.append(f"{owed} results have not been taken by the gateway")
        return found

    # Files

    def _config(self) -> NodeConfig | None:
        config = node_config(self._host.environ, self._files.read_state())
        if config is not None:
            check_gateway_url(config.gateway_base_url)
        return config

    def _enrolment(self) -> tuple[NodeConfig, State]:
        config = self._config()
        if config is None:
            raise NotEnrolled("this node is not enrolled with a gateway")
        return config, self._files.read_state()

    def _token(self, config: NodeConfig | None) -> str | None:
        if config is None:
            return None
        legacy = self._files.read_state().get("runtime_token")
        return first_text(config.runtime_token, self._files.read_token(), legacy)

    async def _keep(
        self,
        wanted: Setup,
        enrolled: Enrolled,
        relay: Mapping[str, str],
        fingerprint: str | None,
    ) -> None:
        now = iso_time(self._host.clocks.wall())
        state = state_after(wanted, enrolled, fingerprint, self._host.version, now)
        # The token first: a state without it would be an enrolment that cannot speak.
        await asyncio.to_thread(self._files.write_token, enrolled.runtime_token)
        await asyncio.to_thread(self._files.write_state, {**state, **relay})
        self._changed.set()

    @asynccontextmanager
    async def _http(self) -> AsyncIterator[aiohttp.ClientSession]:
        agent = {"user-agent": f"skulkd/{self._host.version}"}
        async with aiohttp.ClientSession(headers=agent) as http:
            yield http

    @asynccontextmanager
    async def _gateway(self, base_url: str, timeout_ms: int) -> AsyncIterator[Gateway]:
        async with self._http() as http:
            yield Gateway(base_url, http, timeout_ms / 1000)

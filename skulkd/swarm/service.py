"""The gateway node of a daemon: serves the enrolment there is, and the owner's commands.

Idle until it is enrolled. Commands change the enrolment one at a time; a session that fails is
started again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import aiohttp

from skulkd.swarm.active_jobs import GatewayDeps
from skulkd.swarm.catalog import is_exposed
from skulkd.swarm.enrolment import GatewayEnrolment
from skulkd.swarm.errors import Busy, ConfigError, GatewayError, NotEnrolled
from skulkd.swarm.gateway_urls import job_urls
from skulkd.swarm.generic_jobs import GenericJobs
from skulkd.swarm.js_values import iso_time
from skulkd.swarm.node_config import NodeConfig, NodeSettings, Options
from skulkd.swarm.node_files import NodeFiles
from skulkd.swarm.session import GatewaySession, retry_delay_ms, wait_for_first
from skulkd.swarm.status import StatusFacts, Supervision, configured_status, unconfigured_status
from skulkd.swarm.telemetry import Report

PAUSED = "paused"
STABLE_S = 60.0
"""A session that ran for so long is restarted after the shortest pause."""
log = logging.getLogger(__name__)


async def restart_on_failure(
    work: Callable[[], Awaitable[None]],
    on_failure: Callable[[Exception], None],
    sleep: Callable[[float], Awaitable[None]],
    monotonic: Callable[[], float],
) -> None:
    """Run `work` again and again until cancelled; after failures wait 1 s, 2 s … 60 s."""
    failures = 0
    while True:
        began = monotonic()
        try:
            await work()
            failures = 0
        except Exception as error:  # noqa: BLE001 - after any failure the work starts again
            failures = 1 if monotonic() - began >= STABLE_S else failures + 1
            on_failure(error)
            await sleep(retry_delay_ms(failures) / 1000)


async def _idle() -> None:
    await asyncio.Event().wait()


class SwarmService:
    """At most one enrolment, and the session that serves it."""

    def __init__(self, files: NodeFiles, deps: GatewayDeps) -> None:
        self._files = files
        self._deps = deps
        self._enrolment = GatewayEnrolment(
            files, deps.environ, deps.hostname, deps.version, deps.clocks.wall
        )
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()
        self._session: GatewaySession | None = None
        self._ending: list[GatewaySession] = []
        """Earlier sessions whose jobs are not done yet."""
        self._supervision = Supervision()
        self._generic: GenericJobs | None = None
        self._stopping = False

    # Sessions

    async def run(self) -> None:
        """Serve whatever enrolment there is, until cancelled. A session that fails is restarted."""
        try:
            async with self._enrolment.http() as http:
                await restart_on_failure(
                    lambda: self._serve_once(http),
                    self._session_failed,
                    lambda s: wait_for_first(self._deps.sleep(s), self._changed),
                    self._deps.clocks.monotonic,
                )
        except Exception as error:
            self._supervision.ended = f"{type(error).__name__}: {error}"
            raise
        finally:
            await self._end_sessions(0.0, 0.0)

    async def stop(self, grace_s: float, abort_s: float) -> None:
        """Before the end of the process: accept no more jobs, let those that run finish."""
        self._stopping = True
        await self._end_sessions(grace_s, abort_s)

    def _sessions(self) -> list[GatewaySession]:
        return [*self._ending, *([] if self._session is None else [self._session])]

    async def _end_sessions(self, grace_s: float, abort_s: float) -> None:
        stops = [session.stop(grace_s, abort_s) for session in self._sessions()]
        await asyncio.gather(*stops, return_exceptions=True)

    async def _serve_once(self, http: aiohttp.ClientSession) -> None:
        """One session, until the enrolment changes. Raises whatever ends the session."""
        self._changed.clear()
        await self._enroll_by_environment()
        session = self._session = None if self._stopping else self._open(http)
        self._supervision.failing = False
        changed = asyncio.ensure_future(self._changed.wait())
        work = asyncio.ensure_future(_idle() if session is None else session.run())
        try:
            await asyncio.wait({changed, work}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()  # a session does not end by itself, so this raises
        finally:
            changed.cancel()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            # Jobs of an ended session go on and deliver their results; it accepts no more.
            self._ending = [ending for ending in self._sessions() if len(ending.jobs)]
            self._session = None

    def _session_failed(self, error: Exception) -> None:
        cause = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
        log.error("the gateway session failed and is restarted", exc_info=error)
        supervision = self._supervision
        supervision.restarts += 1
        supervision.failing = True
        supervision.last_failure = f"{type(cause).__name__}: {cause}"[:200]
        supervision.last_failure_at = iso_time(self._deps.clocks.wall())

    async def _enroll_by_environment(self) -> None:
        """A node that was given a one-time token in its environment exchanges it at the start."""
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

    async def _enroll_if_needed(self, config: NodeConfig) -> bool:
        async with self._lock:
            enrolled = await self._enrolment.enroll_if_needed(config)
        if enrolled:
            self._changed.set()
        return enrolled

    def _open(self, http: aiohttp.ClientSession) -> GatewaySession | None:
        try:
            config = self._enrolment.config()
            has_token = config is not None and self._enrolment.token(config) is not None
            paused = self._files.read_state().get(PAUSED) is True
        except ConfigError as error:
            if self._supervision.problem != str(error):
                log.warning("the gateway node does not work: %s", error)
            self._supervision.problem = str(error)
            return None
        self._supervision.problem = None
        if config is None or not has_token or paused:
            return None
        return self._new_session(config, http)

    def _new_session(self, config: NodeConfig, http: aiohttp.ClientSession) -> GatewaySession:
        state = self._files.read_state()
        version = state.get("config_version")
        gateway = self._enrolment.client(config, http, job_urls(config.gateway_base_url, state))
        return GatewaySession(
            self._deps,
            config,
            gateway,
            version if isinstance(version, int) else None,
            lambda job_id: job_id in self.running(),
        )

    def notify(self) -> None:
        """Drain or models have changed."""
        if self._session is not None:
            self._session.notify()

    # The owner's commands; all raise ConfigError and GatewayError

    async def setup(self, api_key: str, options: Options) -> Report:
        """Register this node with an owner's key, which is not kept, and send one heartbeat."""
        async with self._lock:
            await self._enrolment.bootstrap(api_key, options)
        self._changed.set()
        return await self.run_once()

    async def enroll(self, node_id: str, token: str, options: Options) -> Report:
        """Exchange a one-time token for a runtime token."""
        async with self._lock:
            report = await self._enrolment.enroll(node_id, token, options)
        self._changed.set()
        return report

    def planned(self, options: Options) -> NodeSettings:
        """What a setup with these options would use."""
        return self._enrolment.planned(options)

    async def run_once(self) -> Report:
        """One heartbeat, whether the node is paused or not."""
        async with self._enrolment.http() as http:
            config = self._enrolment.required()
            enrolled = await self._enroll_if_needed(config)
            if self._enrolment.token(config) is None:
                raise NotEnrolled("this node has no runtime token")
            report = await self._new_session(config, http).heartbeat()
        return {**report, "enrolled": enrolled}

    async def pause(self, *, paused: bool) -> None:
        """Stop polling, or poll again; what runs is finished. Kept over restarts."""
        async with self._lock:
            self._enrolment.required()
            state = {**self._files.read_state(), PAUSED: paused}
            await asyncio.to_thread(self._files.write_state, state)
        self._changed.set()

    async def leave(self, *, force: bool) -> Report:
        """Tell the gateway if it can be reached, then delete the enrolment.

        Raises Busy while jobs run or results are owed, which would then be lost. With `force`
        files that cannot be used are deleted like others.
        """
        async with self._lock:
            config = self._config_to_leave(force=force)
            if not force:
                self._check_nothing_lost()
            notified = await self._enrolment.uninstall(config)
            await asyncio.to_thread(self._files.forget)
            await asyncio.to_thread(self._deps.records.clear)
        self._changed.set()
        node_id = None if config is None else config.node_id
        return {"left": True, "node_id": node_id, "gateway_notification": notified}

    def _config_to_leave(self, *, force: bool) -> NodeConfig | None:
        try:
            return self._enrolment.required()
        except ConfigError:
            if not force:
                raise
            return None

    def _check_nothing_lost(self) -> None:
        running, owed = len(self.running()), self.owed()
        if running or owed:
            raise Busy(f"{running} jobs run and {owed} results are not delivered")

    async def run_generic(self, envelope: Report) -> Report:
        """A job that is no chat, brought by the owner's own tools. Raises NotEnrolled."""
        config = self._enrolment.required()
        if self._generic is None or self._generic.config != config:
            deps = self._deps
            self._generic = GenericJobs(config, deps.generic_runners, deps.counters, deps.clocks)
        return await self._generic.execute(envelope)

    def cancel_generic(self, job_id: str) -> bool:
        """Whether such a job ran."""
        return self._generic is not None and self._generic.cancel(job_id)

    # Status

    def config(self) -> NodeConfig | None:
        """What was set up, or None; never an error: `status` reports those."""
        try:
            return self._enrolment.config()
        except ConfigError:
            return None

    def owed(self) -> int:
        """Results that the gateway has not accepted yet."""
        return len(self._deps.records.owed())

    def running(self) -> dict[str, str]:
        """Agent or model of each job that is here, by id."""
        return {
            job: name for session in self._sessions() for job, name in session.jobs.names.items()
        }

    def status(self) -> Report:
        records, problems = self._deps.records, list(self._files.too_open())
        try:
            config, state = self._enrolment.config(), self._files.read_state()
        except ConfigError as error:
            return unconfigured_status(records, [str(error)])
        if config is None:
            return unconfigured_status(records, [])
        try:
            has_token = self._enrolment.token(config) is not None
        except ConfigError as error:
            has_token = False
            problems.append(str(error))
        return configured_status(
            StatusFacts(
                config=config,
                paused=state.get(PAUSED) is True,
                has_token=has_token,
                session=self._session,
                supervision=self._supervision,
                records=records,
                running=self.running(),
                models=[a.slug for a in self._deps.agents() if is_exposed(a, config.exposure)],
                file_problems=problems,
            )
        )

"""An enrolled node at work: heartbeats, one poll at a time, jobs side by side, results owed.

Ends when it is cancelled. Jobs that run then go on for the grace of the stop; what is still not
done is in the book and answered for at the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skulkd.swarm.agents import Agent, Job
from skulkd.swarm.answers import polled_job
from skulkd.swarm.capabilities import Probed, capability_block
from skulkd.swarm.catalog import catalog_entry
from skulkd.swarm.claims import Claims
from skulkd.swarm.errors import GatewayError, as_gateway_error
from skulkd.swarm.gateway import GONE, Gateway
from skulkd.swarm.heartbeat import Facts, Look, heartbeat_body, once_report
from skulkd.swarm.job_book import JobBook
from skulkd.swarm.jobs import Clocks, Executor, JobRunner, Ways
from skulkd.swarm.node_config import NodeConfig
from skulkd.swarm.pacing import (
    IDLE_POLL_S,
    RETIRED_HEARTBEAT_S,
    WAIT_MS,
    poll_timeout_s,
    result_timeout_s,
    retry_delay_ms,
)
from skulkd.swarm.results import ResultDelivery
from skulkd.swarm.script_values import iso_time
from skulkd.swarm.telemetry import (
    Counters,
    Discovery,
    Machine,
    Report,
    hardware_pressure,
    load_telemetry,
    poll_capacity,
)

CANCEL_S = 0.5
NO_POLL = frozenset({"retired", "draining", "busy", "stopping"})
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a session is made of."""

    config: NodeConfig
    config_version: int | None
    version: str
    gateway: Gateway
    token: Callable[[], str]
    agents: Callable[[], Sequence[Agent]]
    executor: Executor
    draining: Callable[[], bool]
    probed: Callable[[], Probed]
    machine: Callable[[], Machine]
    book: JobBook
    claims: Claims
    counters: Counters
    clocks: Clocks
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    runs: Callable[[str], bool] = lambda _job_id: False
    """Whether an earlier session still runs or delivers a job."""


@dataclass(slots=True)
class Standing:
    """How it goes, for people."""

    last_heartbeat: str | None = None
    heartbeat_error: str | None = None
    poll_error: str | None = None
    poll_streak: int = 0
    retired: bool = False
    jobs_done: int = 0
    jobs_failed: int = 0
    running: dict[str, str] = field(default_factory=dict)


class Session:
    """One enrolment being served."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._runner = JobRunner(
            parts.config, parts.agents, parts.executor, parts.counters, parts.clocks
        )
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._beat_now = asyncio.Event()
        self._stopping = False
        self._no_work_at: float | None = None
        """When a poll last brought nothing, or a job that this node did not run."""
        self.standing = Standing()
        clocks = parts.clocks
        self._results = ResultDelivery(
            self._post_result,
            parts.book,
            lambda: iso_time(clocks.wall()),
            parts.sleep,
        )

    @property
    def idle(self) -> bool:
        return not self._jobs

    def _is_running(self, job_id: str) -> bool:
        return job_id in self._jobs or self._parts.runs(job_id)

    def notify(self) -> None:
        """Drain or models have changed: the gateway is told at once."""
        self._beat_now.set()
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        interrupted = await asyncio.to_thread(self._parts.book.fail_interrupted)
        if interrupted:
            log.warning("%d jobs were cut off by the last end of this node", interrupted)
        # The first poll waits for the first heartbeat, whatever became of it.
        await self._beat()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat_again_and_again())
            if self._parts.config.relay_mode == "outbound":
                group.create_task(self._poll_again_and_again())

    async def stop(self, grace_s: float, abort_s: float = 0.0) -> None:
        """Ask for no more work and let jobs finish; what does not is cancelled.

        With `abort_s` the gateway is told of cancelled jobs at once, else at the next start.
        """
        self._stopping = True
        self._changed.set()
        if self._jobs:
            await asyncio.wait(self._jobs.values(), timeout=grace_s)
        cancelled = list(self._jobs)
        for task in list(self._jobs.values()):
            task.cancel()
        if not cancelled:
            return
        await asyncio.wait(self._jobs.values(), timeout=max(abort_s / 2, CANCEL_S))
        if abort_s > 0:
            await self._answer_interrupted(cancelled, abort_s / 2)

    async def _answer_interrupted(self, job_ids: Sequence[str], limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.to_thread(self._parts.book.fail, job_ids)
                await self._results.deliver_owed(self._is_running)
        except (TimeoutError, OSError) as error:
            log.warning("interrupted jobs are answered for at the next start: %s", error)

    # Heartbeats

    async def heartbeat(self) -> Report:
        """One, now. Raises GatewayError."""
        parts = self._parts
        token = parts.token()
        look = self._look()
        now = parts.clocks.wall()
        block = capability_block(parts.config.node_id, parts.probed(), token, now)
        hardware = hardware_pressure(parts.machine(), block, now)
        discovery = Discovery(look.models, look.latency_ms, int(look.failed))
        limits = parts.config.limits(draining=parts.draining())
        telemetry = load_telemetry(limits, parts.counters, discovery, hardware)
        facts = Facts(parts.version, parts.config_version, block, now)
        body = heartbeat_body(parts.config, look, telemetry, facts)
        answer = await parts.gateway.heartbeat(token, body)
        self.standing.last_heartbeat = body["health"]["last_success_at"]
        return once_report(look, telemetry, answer, enrolled=False)

    def _look(self) -> Look:
        clock = self._parts.clocks.monotonic
        began = clock()
        exposure = self._parts.config.exposure
        try:
            entries = [catalog_entry(agent, exposure) for agent in self._parts.agents()]
        except Exception as error:  # noqa: BLE001 - the gateway is told that the node is degraded
            log.warning("the models of this cluster cannot be listed: %s", error)
            return Look([], round((clock() - began) * 1000), failed=True)
        models = [entry for entry in entries if entry is not None]
        return Look(models, round((clock() - began) * 1000))

    async def _beat(self) -> None:
        try:
            await self.heartbeat()
        except Exception as error:  # noqa: BLE001 - any failure is told and tried again
            self._heartbeat_failed(as_gateway_error(error, "the heartbeat"))
            return
        if self.standing.retired or self.standing.heartbeat_error:
            log.info("the gateway takes heartbeats again")
        self.standing.retired = False
        self.standing.heartbeat_error = None
        self.standing.poll_streak = 0
        self._changed.set()
        await self._results.deliver_owed(self._is_running)

    def _heartbeat_failed(self, error: GatewayError) -> None:
        if self.standing.heartbeat_error != str(error):
            log.warning("heartbeat failed: %s", error)
        self.standing.heartbeat_error = str(error)
        if error.status == GONE:
            self.standing.retired = True

    async def _beat_again_and_again(self) -> None:
        while True:
            retired = self.standing.retired
            pause_s = RETIRED_HEARTBEAT_S if retired else self._parts.config.heartbeat_interval_s
            await self._sleep_unless(self._beat_now, pause_s)
            await self._beat()

    # Polls

    def poll_reason(self) -> str:
        """Why the node polls or does not."""
        parts = self._parts
        if self._stopping:
            return "stopping"
        if self.standing.retired:
            return "retired"
        if parts.draining() or parts.config.drain:
            return "draining"
        if len(self._jobs) >= parts.config.limits(draining=False).llm:
            return "busy"
        return "backing off" if self.standing.poll_streak else "polling"

    async def _poll_again_and_again(self) -> None:
        while True:
            self._changed.clear()
            if self.poll_reason() in NO_POLL:
                await self._changed.wait()
                continue
            delay_ms = retry_delay_ms(self.standing.poll_streak)
            if delay_ms:
                await self._sleep_unless(self._changed, delay_ms / 1000)
            await self._pace()
            if self.poll_reason() not in NO_POLL:
                await self._poll_once()

    async def _pace(self) -> None:
        """A gateway that answers polls at once and brings no work is asked twice a second."""
        since, self._no_work_at = self._no_work_at, None
        if since is None:
            return
        rest_s = since + IDLE_POLL_S - self._parts.clocks.monotonic()
        if rest_s > 0:
            await self._parts.sleep(rest_s)

    async def _poll_once(self) -> None:
        began = self._parts.clocks.monotonic()
        try:
            found = await self._poll_unless_stopped()
        except Exception as error:  # noqa: BLE001 - any failure is told and tried again
            self._poll_failed(as_gateway_error(error, "the poll"))
            return
        self.standing.poll_streak = 0
        self.standing.poll_error = None
        # A job that arrives during a stop is not acknowledged, so the gateway leases it again.
        if found is None or self._stopping or not self._begin(*found):
            self._no_work_at = began

    async def _poll_unless_stopped(self) -> tuple[Job, str | None] | None:
        """A poll is held for long; a drain ends it at once."""
        polling = asyncio.ensure_future(self.poll())
        try:
            while not polling.done() and self.poll_reason() not in NO_POLL:
                changed = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait({polling, changed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                self._changed.clear()
            return polling.result() if polling.done() else None
        finally:
            polling.cancel()

    async def poll(self) -> tuple[Job, str | None] | None:
        """A job and the key that came with it. Raises GatewayError."""
        parts = self._parts
        limits = parts.config.limits(draining=parts.draining())
        body = {
            "node_id": parts.config.node_id,
            "capacity": poll_capacity(load_telemetry(limits, parts.counters)),
            "wait_ms": WAIT_MS,
        }
        timeout_s = poll_timeout_s(parts.config.request_timeout_ms / 1000, WAIT_MS)
        return polled_job(await parts.gateway.poll(parts.token(), body, timeout_s))

    def _poll_failed(self, error: GatewayError) -> None:
        self.standing.poll_streak += 1
        if self.standing.poll_error != str(error):
            log.warning("poll failed: %s", error)
        self.standing.poll_error = str(error)
        if error.status == GONE:
            self.standing.retired = True

    # Jobs

    def _begin(self, job: Job, attached_key: str | None) -> bool:
        """Whether the job is new here."""
        job_id = str(job["job_id"])
        if job_id in self._jobs:
            log.info("job %s was leased again while it runs; it runs once", job_id)
            return False
        task = asyncio.create_task(self._serve(job, attached_key))
        self._jobs[job_id] = task
        self.standing.running[job_id] = str(job.get("agent_slug") or job.get("model") or "")

        def over(_task: asyncio.Task[None]) -> None:
            self._jobs.pop(job_id, None)
            self.standing.running.pop(job_id, None)
            self._changed.set()

        task.add_done_callback(over)
        return True

    async def _serve(self, job: Job, attached_key: str | None) -> None:
        job_id = str(job["job_id"])
        try:
            outcome = await self.serve(job, attached_key)
            if outcome is None or not outcome["executed"]:
                # The gateway may offer it again at once.
                self._no_work_at = self._parts.clocks.monotonic()
        except GatewayError as error:
            log.warning("the result of job %s is kept until it is taken: %s", job_id, error)
        except Exception:
            log.exception("job %s failed unexpectedly", job_id)
            await asyncio.to_thread(self._parts.book.fail, [job_id])

    async def serve(self, job: Job, attached_key: str | None) -> Report | None:
        """Run it and deliver the result; None when it is not this node's to run.

        Raises GatewayError when the result could not be delivered; it is then in the book.
        """
        parts, job_id = self._parts, str(job["job_id"])
        if not parts.book.may_run(job_id):
            log.info("job %s was here before; it is not run again", job_id)
            return None
        if not await parts.claims.claim(job_id):
            log.info("job %s runs on another node of this cluster", job_id)
            return None
        try:
            result = await self._runner.run(job, attached_key, self._ways())
            await self._results.keep(result)
        except BaseException:
            if parts.book.stage_of(job_id) is None:
                parts.claims.release(job_id)  # it never began
            raise
        executed = result.get("pre_start_failure") is not True
        if not executed:
            # It never began, so it may come again, here or on another node, even while this
            # result cannot be delivered.
            parts.claims.release(job_id)
        self._count(result)
        await self._results.deliver(result)
        return {"executed": executed, "job_id": job_id, "status": result["status"]}

    def _count(self, result: Mapping[str, Any]) -> None:
        self.standing.jobs_done += 1
        self.standing.jobs_failed += result["status"] != "success"

    def _ways(self) -> Ways:
        parts = self._parts

        async def start(job_id: str, body: Mapping[str, Any]) -> None:
            await parts.gateway.start(parts.token(), job_id, body)

        async def events(job_id: str, batch: list[dict[str, Any]]) -> None:
            body = {"node_id": parts.config.node_id, "stream_events": batch}
            await parts.gateway.events(parts.token(), job_id, body)

        async def mark_started(job: Job) -> None:
            await asyncio.to_thread(parts.book.started, job)

        return Ways(start, events, mark_started)

    async def _post_result(self, job_id: str, result: Mapping[str, Any]) -> None:
        parts = self._parts
        timeout_s = result_timeout_s(
            parts.config.request_timeout_ms / 1000, parts.config.job_timeout_ms / 1000
        )
        await parts.gateway.result(parts.token(), job_id, result, timeout_s)

    async def _sleep_unless(self, event: asyncio.Event, seconds: float) -> None:
        """Woken early by the event, which is then over."""
        sleep = asyncio.ensure_future(self._parts.sleep(seconds))
        wake = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({sleep, wake}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            wake.cancel()
        event.clear()

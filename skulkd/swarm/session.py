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
from skulkd.swarm.capabilities import Probed, capability_block
from skulkd.swarm.catalog import catalog_entry
from skulkd.swarm.claims import Claims
from skulkd.swarm.gateway import GONE, Gateway, GatewayError
from skulkd.swarm.heartbeat import Facts, Look, heartbeat_body, once_report
from skulkd.swarm.job_book import JobBook
from skulkd.swarm.jobs import Clocks, Executor, JobRunner, Ways
from skulkd.swarm.node_config import NodeConfig
from skulkd.swarm.pacing import (
    RESULT_RETRIES_MS,
    RETIRED_HEARTBEAT_S,
    poll_timeout_s,
    result_timeout_s,
    retry_delay_ms,
)
from skulkd.swarm.script_values import optional_text
from skulkd.swarm.telemetry import (
    Counters,
    Discovery,
    Machine,
    Report,
    hardware_pressure,
    load_telemetry,
    poll_capacity,
)

WAIT_MS = 2000
NO_POLL = frozenset({"retired", "draining", "busy"})
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
        self.standing = Standing()

    @property
    def idle(self) -> bool:
        return not self._jobs

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

    async def stop(self, grace_s: float) -> None:
        """Let jobs finish; what does not is cancelled and will be answered for."""
        if self._jobs:
            await asyncio.wait(self._jobs.values(), timeout=grace_s)
        for task in list(self._jobs.values()):
            task.cancel()
        if self._jobs:
            await asyncio.wait(self._jobs.values(), timeout=1.0)

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
        except GatewayError as error:
            self._heartbeat_failed(error)
            return
        if self.standing.retired or self.standing.heartbeat_error:
            log.info("the gateway takes heartbeats again")
        self.standing.retired = False
        self.standing.heartbeat_error = None
        self.standing.poll_streak = 0
        self._changed.set()
        await self._deliver_owed()

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
                if self.poll_reason() in NO_POLL:
                    continue
            await self._poll_once()

    async def _poll_once(self) -> None:
        try:
            found = await self.poll()
        except GatewayError as error:
            self._poll_failed(error)
            return
        self.standing.poll_streak = 0
        self.standing.poll_error = None
        if found is not None:
            self._begin(*found)

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
        answer = await parts.gateway.poll(parts.token(), body, timeout_s)
        job = answer.get("job")
        if not isinstance(job, Mapping) or optional_text(job.get("job_id")) is None:
            return None
        return job, optional_text(answer.get("attached_mswarm_api_key"))

    def _poll_failed(self, error: GatewayError) -> None:
        self.standing.poll_streak += 1
        if self.standing.poll_error != str(error):
            log.warning("poll failed: %s", error)
        self.standing.poll_error = str(error)
        if error.status == GONE:
            self.standing.retired = True

    # Jobs

    def _begin(self, job: Job, attached_key: str | None) -> None:
        job_id = str(job["job_id"])
        if job_id in self._jobs:
            log.info("job %s was leased again while it runs; it runs once", job_id[:64])
            return
        task = asyncio.create_task(self._serve(job, attached_key))
        self._jobs[job_id] = task
        self.standing.running[job_id] = str(job.get("agent_slug") or job.get("model") or "")

        def over(_task: asyncio.Task[None]) -> None:
            self._jobs.pop(job_id, None)
            self.standing.running.pop(job_id, None)
            self._changed.set()

        task.add_done_callback(over)

    async def _serve(self, job: Job, attached_key: str | None) -> None:
        job_id = str(job["job_id"])
        try:
            await self.serve(job, attached_key)
        except GatewayError as error:
            log.warning("the result of job %s is kept until it is taken: %s", job_id[:64], error)
        except Exception:
            log.exception("job %s failed in a way nobody thought of", job_id[:64])

    async def serve(self, job: Job, attached_key: str | None) -> Report | None:
        """Run it and deliver the result; None when it is not this node's to run.

        Raises GatewayError when the result could not be delivered; it is then in the book.
        """
        book, job_id = self._parts.book, str(job["job_id"])
        if book.stage_of(job_id) is not None:
            log.info("job %s was here before; it is not run again", job_id[:64])
            return None
        if not await self._parts.claims.claim(job_id):
            log.info("job %s runs on another node of this cluster", job_id[:64])
            return None
        result = await self._runner.run(job, attached_key, self._ways())
        await asyncio.to_thread(book.finished, result)
        failed = result["status"] != "success"
        self.standing.jobs_done += 1
        self.standing.jobs_failed += failed
        await self._deliver(result)
        return {"executed": True, "job_id": job_id, "status": result["status"]}

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

    async def _deliver(self, result: Mapping[str, Any]) -> None:
        """Four attempts. Raises GatewayError after the last."""
        for pause_ms in (*RESULT_RETRIES_MS, None):
            try:
                await self._post_result(result)
            except GatewayError:
                if pause_ms is None:
                    raise
                await self._parts.sleep(pause_ms / 1000)
            else:
                return

    async def _post_result(self, result: Mapping[str, Any]) -> None:
        parts = self._parts
        job_id = str(result["job_id"])
        timeout_s = result_timeout_s(
            parts.config.request_timeout_ms / 1000, parts.config.job_timeout_ms / 1000
        )
        await parts.gateway.result(parts.token(), job_id, result, timeout_s)
        await asyncio.to_thread(parts.book.delivered, job_id)

    async def _deliver_owed(self) -> None:
        """What could not be delivered before: the gateway answers again."""
        for result in self._parts.book.owed():
            if str(result.get("job_id")) in self._jobs:
                continue  # on its way already
            try:
                await self._post_result(result)
            except GatewayError as error:
                log.warning("a result that is owed was not taken: %s", error)
                if error.status is None:
                    return  # nobody there; the others would fare no better

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

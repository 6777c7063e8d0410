"""The jobs of one session: claimed, run side by side, and their results delivered.

A result is stored before it is posted. One that the gateway does not accept is posted again at
later heartbeats, also after a restart, unless it was refused for good.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skulkd.swarm.capabilities import MachineProbe
from skulkd.swarm.catalog import Agent
from skulkd.swarm.claims import Claims
from skulkd.swarm.errors import GatewayError
from skulkd.swarm.gateway import Gateway
from skulkd.swarm.job_checks import Job
from skulkd.swarm.job_records import JobRecords, ResultRefusal
from skulkd.swarm.job_runner import Executor, JobCalls, JobRunner
from skulkd.swarm.js_values import iso_time
from skulkd.swarm.node_config import NodeConfig
from skulkd.swarm.telemetry import Clocks, Counters, Machine, Report

CANCEL_S = 0.5
RESULT_RETRIES_MS = (250, 1000, 2500)
MAX_RESULT_TIMEOUT_S = 300.0
REFUSED_FOR_GOOD = frozenset({404, 410, 422})
"""Statuses after which a result is not sent again: the job is unknown, over, or unacceptable."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GatewayDeps:
    """What the gateway node uses of its daemon."""

    version: str
    hostname: str
    environ: Mapping[str, str]
    agents: Callable[[], Sequence[Agent]]
    executor: Executor
    draining: Callable[[], bool]
    probe: Callable[[NodeConfig], MachineProbe]
    machine: Callable[[], Machine]
    records: JobRecords
    claims: Claims
    counters: Counters
    clocks: Clocks
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    generic_runners: frozenset[str] = frozenset()
    """The kinds of generic jobs that the owner enabled."""


class ActiveJobs:
    """Jobs that this session runs or delivers, by id."""

    def __init__(
        self,
        deps: GatewayDeps,
        config: NodeConfig,
        gateway: Gateway,
        runs_elsewhere: Callable[[str], bool],
        on_end: Callable[[], None],
    ) -> None:
        """`runs_elsewhere`: whether an earlier session still runs or delivers a job."""
        self._deps = deps
        self._config = config
        self._gateway = gateway
        self._runs_elsewhere = runs_elsewhere
        self._on_end = on_end
        self._runner = JobRunner(config, deps.agents, deps.executor, deps.counters, deps.clocks)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._posting: set[str] = set()
        self.names: dict[str, str] = {}
        """Agent or model of each job."""
        self.done = 0
        self.failed = 0
        self.not_run_at: float | None = None
        """When a job last came that this node did not run."""

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, job: Job, attached_key: str | None) -> bool:
        """Whether the job is new here."""
        job_id = str(job["job_id"])
        if job_id in self._tasks:
            log.info("job %s was leased again while it runs; it runs once", job_id)
            return False
        task = asyncio.create_task(self._serve(job, attached_key))
        self._tasks[job_id] = task
        self.names[job_id] = str(job.get("agent_slug") or job.get("model") or "")

        def ended(_task: asyncio.Task[None]) -> None:
            self._tasks.pop(job_id, None)
            self.names.pop(job_id, None)
            self._on_end()

        task.add_done_callback(ended)
        return True

    async def _serve(self, job: Job, attached_key: str | None) -> None:
        job_id = str(job["job_id"])
        try:
            report = await self.serve(job, attached_key)
            if report is None or not report["executed"]:
                # The gateway may offer it again at once.
                self.not_run_at = self._deps.clocks.monotonic()
        except GatewayError as error:
            log.warning("the result of job %s is kept until it is accepted: %s", job_id, error)
        except Exception:
            log.exception("job %s failed unexpectedly", job_id)
            await asyncio.to_thread(self._deps.records.fail, [job_id])

    async def serve(self, job: Job, attached_key: str | None) -> Report | None:
        """Run it and deliver the result; None when it is not this node's to run.

        Raises GatewayError when the result could not be delivered; it is then on disk.
        """
        records, claims, job_id = self._deps.records, self._deps.claims, str(job["job_id"])
        if not records.may_run(job_id):
            log.info("job %s was here before; it is not run again", job_id)
            return None
        if not await claims.claim(job_id):
            log.info("job %s runs on another node of this cluster", job_id)
            return None
        try:
            result = await self._runner.run(job, attached_key, self._calls())
            await self._store(result)
        except BaseException:
            if records.stage_of(job_id) is None:
                claims.release(job_id)  # it never began
            raise
        executed = result.get("pre_start_failure") is not True
        if not executed:
            # It never began, so it may come again, here or on another node, even while this
            # result cannot be delivered.
            claims.release(job_id)
        self.done += 1
        self.failed += result["status"] != "success"
        await self._deliver(result)
        return {"executed": executed, "job_id": job_id, "status": result["status"]}

    def _calls(self) -> JobCalls:
        async def events(job_id: str, batch: list[dict[str, Any]]) -> None:
            body = {"node_id": self._config.node_id, "stream_events": batch}
            await self._gateway.events(job_id, body)

        async def record_start(job: Job) -> None:
            await asyncio.to_thread(self._deps.records.started, job)

        return JobCalls(self._gateway.start, events, record_start)

    async def stop(self, grace_s: float, abort_s: float) -> None:
        """Let jobs finish for `grace_s`, then cancel them.

        With `abort_s` the results of cancelled jobs are sent at once, else at the next start.
        """
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=grace_s)
        cancelled = list(self._tasks)
        for task in list(self._tasks.values()):
            task.cancel()
        if not cancelled:
            return
        await asyncio.wait(self._tasks.values(), timeout=max(abort_s / 2, CANCEL_S))
        if abort_s > 0:
            await self._fail_interrupted(cancelled, abort_s / 2)

    async def _fail_interrupted(self, job_ids: Sequence[str], limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.to_thread(self._deps.records.fail, job_ids)
                await self.deliver_owed()
        except (TimeoutError, OSError) as error:
            log.warning("results of interrupted jobs are sent at the next start: %s", error)

    # Results

    async def _store(self, result: Mapping[str, Any]) -> None:
        """On disk before it is posted. With a full disk it is posted all the same."""
        try:
            await asyncio.to_thread(self._deps.records.finished, result)
        except OSError as error:
            log.warning("the result of job %s cannot be stored: %s", result["job_id"], error)

    async def _deliver(self, result: Mapping[str, Any]) -> None:
        """Four attempts. Raises GatewayError after the last."""
        for pause_ms in (*RESULT_RETRIES_MS, None):
            try:
                await self._post(result)
            except GatewayError:
                if pause_ms is None:
                    raise
                await self._deps.sleep(pause_ms / 1000)
            else:
                return

    async def deliver_owed(self) -> None:
        """Results that could not be delivered before, except of jobs that deliver themselves."""
        records = self._deps.records
        for job_id in records.owed():
            running = job_id in self._tasks or self._runs_elsewhere(job_id)
            if running or job_id in self._posting:
                continue
            result = await asyncio.to_thread(records.result_of, job_id)
            if result is None:
                await asyncio.to_thread(records.forget, job_id)
                continue
            try:
                await self._post(result)
            except GatewayError as error:
                log.warning("the result of job %s was not delivered: %s", job_id, error)
                if error.status is None:
                    return  # the gateway does not answer; the others would fail as well

    async def _post(self, result: Mapping[str, Any]) -> None:
        """One attempt. A refusal for good counts as settled. Raises GatewayError."""
        job_id = str(result["job_id"])
        config = self._config
        # Results may be large, so they get longer than other calls.
        timeout_s = max(
            config.request_timeout_ms / 1000,
            min(config.job_timeout_ms / 1000, MAX_RESULT_TIMEOUT_S),
        )
        self._posting.add(job_id)
        refusal: ResultRefusal | None = None
        try:
            await self._gateway.result(job_id, result, timeout_s)
        except GatewayError as error:
            if error.status is None or error.status not in REFUSED_FOR_GOOD:
                raise
            log.warning("the gateway refused the result of job %s for good: %s", job_id, error)
            now = iso_time(self._deps.clocks.wall())
            refusal = ResultRefusal(error.status, now, str(error))
        finally:
            self._posting.discard(job_id)
        try:
            await asyncio.to_thread(self._deps.records.settled, job_id, refusal)
        except OSError as error:
            log.warning("job %s cannot be marked as delivered: %s", job_id, error)

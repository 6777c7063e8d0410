"""Generic jobs, which are no chat: checked, bounded, and run only if the owner enabled their kind.

Never delivered by a poll; the owner's own tools bring them. Only the echo runs here: it shows the
way of a job and starts no process.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from skulkd.swarm.generic_contract import check_job
from skulkd.swarm.js_values import is_number, iso_time, mapping_of
from skulkd.swarm.node_config import NodeConfig
from skulkd.swarm.telemetry import Clocks, Counters, Report

ECHO = "test.echo"
RUNNER_OF_TYPE = {
    "tenant.test-echo": ECHO,
    "render.blender": "blender.render",
    "cuda.run": "cuda.package",
}
CANCELLED = "cancelled"
SANDBOX = "owner-local-process"
MAX_REPEATS = 20
MAX_DELAY_MS = 30_000

GenericJob = Mapping[str, Any]


class GenericFailure(Exception):
    """A job is refused or failed, with the reference's code."""

    def __init__(self, code: str, message: str, issues: list[Report] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.issues = issues or []


@dataclass(slots=True)
class _EventLog:
    """The events of one job, numbered."""

    job_id: str
    clocks: Clocks
    events: list[Report] = field(default_factory=list)

    def add(self, kind: str, message: str, data: Report) -> None:
        self.events.append(
            {
                "job_id": self.job_id,
                "sequence": len(self.events),
                "timestamp": iso_time(self.clocks.wall()),
                "type": kind,
                "message": message,
                "data": data,
            }
        )


class GenericJobs:
    """Runs envelopes up to the owner's limit at once. `runners` are the kinds enabled."""

    def __init__(
        self,
        config: NodeConfig,
        runners: frozenset[str],
        counters: Counters,
        clocks: Clocks,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.config = config
        self._runners = runners
        self._counters = counters
        self._clocks = clocks
        self._sleep = sleep
        self._running: dict[str, asyncio.Future[Report]] = {}
        self._cancelled: set[str] = set()
        self._slots = asyncio.Semaphore(config.generic_slots)

    async def execute(self, envelope: Mapping[str, Any]) -> Report:
        """The result of a job, also of one that fails. Keys in the reference's order."""
        job_id, began = str(envelope.get("job_id")), self._clocks.monotonic()
        events = _EventLog(job_id, self._clocks)
        self._counters.begin("generic_job")
        issues: list[Report] = []
        code: str | None = None
        try:
            job = self._admit(envelope)
            result = await self._unless_cancelled(self._in_turn(job, events), job_id)
        except GenericFailure as failure:
            code, issues = failure.code, failure.issues
            status = "cancelled" if code == CANCELLED else "failed"
            events.add(status, str(failure), {"code": code})
            error = {"code": code, "message": str(failure), "retryable": code == "timeout"}
            finished = iso_time(self._clocks.wall())
            result = {"job_id": job_id, "status": status, "error": error, "finished_at": finished}
        except BaseException:
            self._counters.finish("generic_job", 0, ok=False, code="runner_error")
            raise
        took_ms = max(0, round((self._clocks.monotonic() - began) * 1000))
        self._counters.finish("generic_job", took_ms, ok=code is None, code=code)
        return {
            "job_id": job_id,
            "request_id": envelope.get("request_id"),
            "status": result["status"],
            "result": result,
            "events": events.events,
            **({"validation_issues": issues} if issues else {}),
            "timing": {"local_latency_ms": took_ms},
        }

    def cancel(self, job_id: str) -> bool:
        """Whether such a job runs or waits here; its result says `cancelled`."""
        running = self._running.get(job_id)
        if running is None:
            return False
        self._cancelled.add(job_id)
        return running.cancel()

    def _admit(self, envelope: Mapping[str, Any]) -> GenericJob:
        """The job, if this node may and can run it. Raises GenericFailure."""
        if not self.config.generic_jobs_enabled:
            raise GenericFailure("feature_disabled", "generic jobs are not enabled on this node")
        if envelope.get("node_id") != self.config.node_id:
            raise GenericFailure("validation_failed", "job node_id does not match this node")
        job = envelope.get("job")
        issues = check_job(job)
        if issues or not isinstance(job, Mapping):
            message = "; ".join(f"{issue.path}: {issue.message}" for issue in issues)
            raise GenericFailure("validation_failed", message, [i.as_json() for i in issues])
        job_type = str(job["job_type"])
        runner = RUNNER_OF_TYPE.get(job_type)
        if runner is None:
            raise GenericFailure("runner_unavailable", f"no runner takes jobs of type {job_type}")
        if runner != ECHO:
            # We have no runner for Blender or containers, so no node of ours is capable.
            raise GenericFailure("no_capable_node", f"this node cannot run {job_type}")
        if runner not in self._runners:
            message = f"{runner} is not enabled here; the owner lists it in swarm.generic_runners"
            raise GenericFailure("runner_unavailable", message)
        return job

    async def _unless_cancelled(self, work: Coroutine[None, None, Report], job_id: str) -> Report:
        running = asyncio.ensure_future(work)
        self._running[job_id] = running
        try:
            return await running
        except asyncio.CancelledError:
            if not running.cancelled() or job_id not in self._cancelled:
                raise
            raise GenericFailure(CANCELLED, "the owner cancelled the job") from None
        finally:
            running.cancel()
            self._running.pop(job_id, None)
            self._cancelled.discard(job_id)

    async def _in_turn(self, job: GenericJob, events: _EventLog) -> Report:
        self._counters.queued_generic += 1
        try:
            await self._slots.acquire()
        finally:
            self._counters.queued_generic -= 1
        try:
            return await self._run(job, events)
        finally:
            self._slots.release()

    async def _run(self, job: GenericJob, events: _EventLog) -> Report:
        limit_ms = self._limit_ms(job)
        started_at = iso_time(self._clocks.wall())
        facts = {"runner": ECHO, "sandbox_profile": SANDBOX, "timeout_ms": limit_ms}
        events.add("started", f"runs with {ECHO}", facts)
        try:
            async with asyncio.timeout(limit_ms / 1000):
                metrics = await self._echo(mapping_of(job.get("args")), events)
        except TimeoutError:
            message = f"the job ran into its timeout of {limit_ms} ms"
            raise GenericFailure("timeout", message) from None
        _check_outputs(job)
        events.add("completed", "done", {"status": "succeeded", "exit_code": 0, "runner": ECHO})
        return {
            "job_id": events.job_id,
            "status": "succeeded",
            "exit_code": 0,
            "started_at": started_at,
            "finished_at": iso_time(self._clocks.wall()),
            "metrics": metrics,
            "artifacts": [],
        }

    async def _echo(self, args: Mapping[str, Any], events: _EventLog) -> Report:
        """Repeats its message, for owners who want to see the way of a job."""
        message = str(args.get("message", ""))
        if args.get("fail") is True:
            raise GenericFailure("runner_error", message or "args.fail is set")
        repeat = _clamped(args.get("repeat", 1), 1, MAX_REPEATS)
        delay_ms = _clamped(args.get("delay_ms", 0), 0, MAX_DELAY_MS)
        if delay_ms:
            await self._sleep(delay_ms / 1000)
        for index in range(repeat):
            events.add("stdout", message, {"runner": ECHO, "index": index, "repeat": repeat})
        events.add("progress", f"{repeat} of {repeat}", {"completed": repeat, "total": repeat})
        return {"runner": ECHO, "echoed": repeat, "message": message}

    def _limit_ms(self, job: GenericJob) -> int:
        seconds = mapping_of(job.get("limits")).get("timeout_sec")
        own = self.config.generic_job_timeout_ms
        if isinstance(seconds, int | float) and is_number(seconds) and seconds > 0:
            return min(own, math.floor(seconds * 1000))
        return own


def _check_outputs(job: GenericJob) -> None:
    """The echo writes no files, so a job that requires one fails."""
    for output in job.get("outputs") or ():
        if output.get("required") is True:
            path = output["path"]
            raise GenericFailure("runner_error", f"the required output {path} is missing")


def _clamped(value: object, low: int, high: int) -> int:
    number = value if isinstance(value, int | float) and is_number(value) else low
    return max(low, min(high, math.floor(number)))

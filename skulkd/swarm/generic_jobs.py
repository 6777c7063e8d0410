"""Jobs that are no chat: checked, bounded, and run only by kinds of runner the owner enabled.

Never delivered by a poll; the owner's own tools bring them. Nothing here starts a process.
"""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from skulkd.swarm.generic_contract import DEFAULT_ARTIFACT_BYTES, check_job, safe_relative_path
from skulkd.swarm.jobs import Clocks
from skulkd.swarm.node_config import NodeConfig
from skulkd.swarm.script_values import is_number, iso_time, optional_text, sha256_hex
from skulkd.swarm.telemetry import Counters

ECHO = "test.echo"
RUNNER_OF_TYPE = {
    "tenant.test-echo": ECHO,
    "render.blender": "blender.render",
    "cuda.run": "cuda.package",
}
NEEDS_CAPABILITY = frozenset({"blender.render", "cuda.package"})
CANCELLED = "cancelled"
SANDBOX = "owner-local-process"
MOST_REPEATS = 20
LONGEST_DELAY_MS = 30_000

Job = Mapping[str, Any]
Report = dict[str, Any]


class GenericFailure(Exception):
    """A job is refused or failed, with the reference's code."""

    def __init__(self, code: str, message: str, issues: list[Report] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.issues = issues or []


Note = Callable[[str, str, Report], None]
"""One event: type, message, data."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What a runner works with."""

    job: Job
    outputs: Path
    note: Note
    sleep: Callable[[float], Awaitable[None]]


class Runner(Protocol):
    """One kind of generic work; `kind` is what owners enable."""

    kind: str

    async def run(self, desk: Desk) -> Report:
        """Its metrics. Any error is a failed job."""
        ...


class EchoRunner:
    """Says what it is told: for owners who want to see the way a job takes."""

    kind = ECHO

    async def run(self, desk: Desk) -> Report:
        args = desk.job.get("args") or {}
        message = str(args.get("message", ""))
        if args.get("fail") is True:
            raise RuntimeError(message or "told to fail")
        repeat = _bounded(args.get("repeat", 1), 1, MOST_REPEATS)
        delay_ms = _bounded(args.get("delay_ms", 0), 0, LONGEST_DELAY_MS)
        if delay_ms:
            await desk.sleep(delay_ms / 1000)
        for index in range(repeat):
            desk.note("stdout", message, {"runner": self.kind, "index": index, "repeat": repeat})
        done = {"completed": repeat, "total": repeat}
        desk.note("progress", f"{repeat} of {repeat}", done)
        return {"runner": self.kind, "echoed": repeat, "message": message}


RUNNERS: Mapping[str, Runner] = {ECHO: EchoRunner()}


@dataclass(slots=True)
class _Record:
    """The events of one job, numbered."""

    job_id: str
    clocks: Clocks
    events: list[Report] = field(default_factory=list)

    def note(self, kind: str, message: str, data: Report) -> None:
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
    """Runs envelopes one by one up to the owner's limit. `kinds` are the runners enabled."""

    def __init__(
        self,
        config: NodeConfig,
        kinds: frozenset[str],
        counters: Counters,
        clocks: Clocks,
        directory: Path,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.config = config
        self._kinds = kinds
        self._counters = counters
        self._clocks = clocks
        self._directory = directory
        self._sleep = sleep
        self._running: dict[str, asyncio.Future[Report]] = {}
        self._cancelled: set[str] = set()
        self._places = asyncio.Semaphore(config.limits(draining=False).generic)

    async def execute(self, envelope: Mapping[str, Any]) -> Report:
        """The result, whatever happens. Keys in the reference's order."""
        job_id, began = str(envelope.get("job_id")), self._clocks.monotonic()
        record = _Record(job_id, self._clocks)
        self._counters.begin("generic_job")
        issues: list[Report] = []
        code: str | None = None
        try:
            result = await self._run(envelope, record)
        except GenericFailure as failure:
            code, issues = failure.code, failure.issues
            status = "cancelled" if code == CANCELLED else "failed"
            record.note(status, str(failure), {"code": code})
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
            "events": record.events,
            **({"validation_issues": issues} if issues else {}),
            "timing": {"local_latency_ms": took_ms},
        }

    async def _run(self, envelope: Mapping[str, Any], record: _Record) -> Report:
        job = self._admit(envelope)
        runner = self._runner(job)
        return await self._unless_cancelled(self._in_turn(job, runner, record), record.job_id)

    async def _in_turn(self, job: Job, runner: Runner, record: _Record) -> Report:
        self._counters.queued_generic += 1
        try:
            await self._places.acquire()
        finally:
            self._counters.queued_generic -= 1
        try:
            return await self._work(job, runner, record)
        finally:
            self._places.release()

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

    def cancel(self, job_id: str) -> bool:
        """Whether such a job runs or waits here; its result says `cancelled`."""
        running = self._running.get(job_id)
        if running is None:
            return False
        self._cancelled.add(job_id)
        return running.cancel()

    async def _work(self, job: Job, runner: Runner, record: _Record) -> Report:
        outputs = await asyncio.to_thread(self._prepare, record.job_id)
        limit_ms = self._limit_ms(job)
        started_at = iso_time(self._clocks.wall())
        facts = {"runner": runner.kind, "sandbox_profile": SANDBOX, "timeout_ms": limit_ms}
        record.note("started", f"runs with {runner.kind}", facts)
        metrics = await self._bounded(
            runner, Desk(job, outputs, record.note, self._sleep), limit_ms
        )
        artifacts = await asyncio.to_thread(_artifacts, job, outputs)
        done = {"status": "succeeded", "exit_code": 0, "runner": runner.kind}
        record.note("completed", "done", done)
        return {
            "job_id": record.job_id,
            "status": "succeeded",
            "exit_code": 0,
            "started_at": started_at,
            "finished_at": iso_time(self._clocks.wall()),
            "metrics": metrics,
            "artifacts": artifacts,
        }

    def _admit(self, envelope: Mapping[str, Any]) -> Job:
        if not self.config.generic_enabled:
            raise GenericFailure("feature_disabled", "generic jobs are not enabled on this node")
        if envelope.get("node_id") != self.config.node_id:
            raise GenericFailure("validation_failed", "job node_id does not match this node")
        job = envelope.get("job")
        issues = check_job(job)
        if issues or not isinstance(job, Mapping):
            told = "; ".join(f"{issue.path}: {issue.message}" for issue in issues)
            raise GenericFailure("validation_failed", told, [issue.as_json() for issue in issues])
        return job

    def _runner(self, job: Job) -> Runner:
        job_type = str(job["job_type"])
        kind = RUNNER_OF_TYPE.get(job_type)
        if kind is None:
            raise GenericFailure("runner_unavailable", f"no runner takes jobs of type {job_type}")
        if kind in NEEDS_CAPABILITY:
            # No runner of ours drives Blender or containers, so no node of ours can.
            raise GenericFailure("no_capable_node", f"this node cannot run {job_type}")
        if kind not in self._kinds:
            message = f"{kind} is not enabled here; the owner lists it in swarm.generic_runners"
            raise GenericFailure("runner_unavailable", message)
        return RUNNERS[kind]

    def _prepare(self, job_id: str) -> Path:
        # Job ids are another's words and must not become paths.
        outputs = self._directory / sha256_hex(job_id)[:32] / "outputs"
        try:
            shutil.rmtree(outputs, ignore_errors=True)
            outputs.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise GenericFailure("validation_failed", f"no place for outputs: {error}") from error
        return outputs

    def _limit_ms(self, job: Job) -> int:
        limits = job.get("limits")
        seconds = limits.get("timeout_sec") if isinstance(limits, Mapping) else None
        own = self.config.generic_timeout_ms
        if isinstance(seconds, int | float) and is_number(seconds) and seconds > 0:
            return min(own, math.floor(seconds * 1000))
        return own

    async def _bounded(self, runner: Runner, desk: Desk, limit_ms: int) -> Report:
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await runner.run(desk)
        except TimeoutError:
            message = f"the job ran into its timeout of {limit_ms} ms"
            raise GenericFailure("timeout", message) from None
        except Exception as error:
            code = optional_text(getattr(error, "code", None)) or "runner_error"
            raise GenericFailure(code, str(error) or type(error).__name__) from error


def _artifacts(job: Job, outputs: Path) -> list[Report]:
    """What the job left behind, and was meant to."""
    found: list[Report] = []
    policy = job.get("policy") or {}
    most = policy.get("max_artifact_bytes") or DEFAULT_ARTIFACT_BYTES
    for entry in job.get("outputs") or ():
        name = safe_relative_path(str(entry["path"]))
        file = outputs / name
        if not file.is_file() or file.resolve() != outputs.resolve() / name:
            if entry.get("required") is True:
                raise GenericFailure("runner_error", f"the required output {name} is missing")
            continue
        size = file.stat().st_size
        if size > most:
            raise GenericFailure("runner_error", f"{name} has {size} bytes, allowed are {most}")
        found.append({"name": optional_text(entry.get("name")), "path": name, "size_bytes": size})
    return found


def _bounded(value: object, low: int, high: int) -> int:
    number = value if isinstance(value, int | float) and is_number(value) else low
    return max(low, min(high, math.floor(number)))

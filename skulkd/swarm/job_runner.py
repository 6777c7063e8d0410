"""Runs one job: checks, acknowledgement, generation, streamed chunks, result.

Every failure becomes a result; only the end of the process stops a job half-way, and for that
its start is recorded on disk. The order of the steps is the reference's.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from skulkd.swarm.catalog import Agent, is_exposed
from skulkd.swarm.chat_format import (
    Completion,
    JobToolCall,
    chat_chunk,
    chat_completion,
    messages_to_prompt,
    ollama_completion,
    ollama_request,
    tool_calls_delta,
)
from skulkd.swarm.errors import GatewayError, JobError, code_from_message, explicit_code, redact
from skulkd.swarm.event_forwarder import Chunk, EventForwarder
from skulkd.swarm.job_checks import (
    Job,
    check_docdex,
    job_flaw,
    openai_request,
    policy_of,
    polled_class,
    runtime_limit_ms,
    select_agent,
    start_body,
)
from skulkd.swarm.js_values import is_number, iso_time
from skulkd.swarm.node_config import NodeConfig
from skulkd.swarm.telemetry import Clocks, Counters

Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChatWork:
    """What an executor is asked for: a local model and a request in OpenAI's shape."""

    model: str
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChatSinks:
    """Where an executor reports to while it works."""

    emit: Callable[[str | None], None]
    """A piece of text; None at the end of a stream."""
    tool_calls: Callable[[Sequence[JobToolCall]], None]
    status: Callable[[str], None]
    """A new phase of the work; the gateway gets it with the result."""


class Executor(Protocol):
    """Runs jobs on models. Errors may carry a `code`; their text is redacted before it leaves."""

    async def chat(self, work: ChatWork, sinks: ChatSinks) -> Completion: ...

    async def ollama(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A body of Ollama's `/api/chat`; the response has Ollama's shape."""
        ...


@dataclass(frozen=True, slots=True)
class JobCalls:
    """The calls of a job to the gateway, and the record of its start."""

    start: Callable[[str, Mapping[str, Any]], Awaitable[None]]
    events: Callable[[str, list[Chunk]], Awaitable[None]]
    record_start: Callable[[Job], Awaitable[None]]


@dataclass(slots=True)
class _Run:
    """A job while it is here."""

    job: Job
    attached_key: str | None
    forwarder: EventForwarder
    began: float
    started: bool = False
    progress: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    agent: Agent | None = None

    @property
    def ids(self) -> dict[str, Any]:
        return {"job_id": self.job.get("job_id"), "request_id": self.job.get("request_id")}

    @property
    def request_id(self) -> str:
        return str(self.job.get("request_id"))


class JobRunner:
    """Runs the jobs of one gateway node."""

    def __init__(
        self,
        config: NodeConfig,
        agents: Callable[[], Sequence[Agent]],
        executor: Executor,
        counters: Counters,
        clocks: Clocks,
    ) -> None:
        self._config = config
        self._agents = agents
        self._executor = executor
        self._counters = counters
        self._clocks = clocks

    async def run(self, job: Job, attached_key: str | None, calls: JobCalls) -> Result:
        """The result for the gateway."""
        kind = polled_class(job)
        self._counters.begin(kind)
        began = self._clocks.monotonic()
        if job.get("node_id") != self._config.node_id:
            error = {"code": "validation_failed", "message": "job node_id does not match this node"}
            self._counters.finish(kind, 0.0, ok=False, code=error["code"])
            ids = {"job_id": job.get("job_id"), "request_id": job.get("request_id")}
            failed = {"status": "failed", "pre_start_failure": True, "error": error}
            return {**ids, **failed, "node_id": self._config.node_id}
        streams = openai_request(job).get("stream") is True
        send = (lambda batch: calls.events(str(job.get("job_id")), batch)) if streams else None
        run = _Run(job, attached_key, EventForwarder(send), began)
        try:
            result, code = await self._attempt(run, calls)
        except asyncio.CancelledError:
            run.forwarder.drop()
            self._counters.finish(kind, self._took_ms(run), ok=False, code="upstream_error")
            raise
        self._counters.finish(kind, self._took_ms(run), ok=code is None, code=code)
        return await self._complete(run, result)

    async def _attempt(self, run: _Run, calls: JobCalls) -> tuple[Result, str | None]:
        try:
            response = await self._execute(run, calls)
        except Exception as error:  # noqa: BLE001 - every failure is a result
            code, message = self._failure(run, error)
            early = {} if run.started else {"pre_start_failure": True}
            failure = {"code": code, "message": message}
            return {**run.ids, "status": "failed", **early, "error": failure}, code
        return {**run.ids, "status": "success", "openai_response": response}, None

    async def _complete(self, run: _Run, result: Result) -> Result:
        unsent = await run.forwarder.finish()
        if unsent:
            result["stream_events"] = unsent
        if run.progress:
            result["progress_events"] = run.progress
        result["timing"] = {"local_latency_ms": self._took_ms(run)}
        result["node_id"] = self._config.node_id
        return result

    async def _execute(self, run: _Run, calls: JobCalls) -> dict[str, Any]:
        if (flaw := job_flaw(run.job)) is not None:
            raise JobError("validation_failed", flaw)
        if run.job.get("provider") == "ollama":
            return await self._execute_ollama(run, calls)
        if not messages_to_prompt(openai_request(run.job).get("messages")):
            raise JobError("validation_failed", "the prompt of the job is empty")
        agent = run.agent = select_agent(run.job, self._agents(), self._config.exposure)
        check_docdex(run.job, run.attached_key)
        await self._acknowledge(run, calls)
        selected = {"agent_slug": agent.slug, "adapter": agent.adapter}
        tools = {"supports_tools": agent.supports_tools}
        run.progress.append({"type": "agent_selected", **run.ids, **selected, **tools})
        model = agent.model or agent.slug
        work = ChatWork(model, self._request(run))
        async with self._limit(run.job):
            completion = await self._executor.chat(work, self._sinks(run))
        metadata: dict[str, Any] = {
            "provider": "openai-compatible",
            "adapter": agent.adapter,
            "local_model": model,
            "agent_slug": agent.slug,
            "codali_run_id": run.request_id,
            "tool_calls_executed": 0,
            "touched_files": [],
            "warnings": run.warnings,
            "mode": "freeform",
        }
        return self._response(run, completion, metadata)

    async def _execute_ollama(self, run: _Run, calls: JobCalls) -> dict[str, Any]:
        """Such a job names no agent; models that the owner hides are refused all the same."""
        body = ollama_request({**run.job, "openai_request": self._request(run, limit=False)})
        named = body["model"]
        for agent in self._agents():
            if named not in agent.names:
                continue
            if not is_exposed(agent, self._config.exposure):
                raise JobError(
                    "selected_agent_unavailable", f"model {named} is not exposed by this node"
                )
            # The gateway knows models by the slugs that were advertised, too.
            body["model"] = agent.model or named
        await self._acknowledge(run, calls)
        async with self._limit(run.job):
            raw = await self._executor.ollama(body)
        completion = ollama_completion(raw, run.request_id)
        if openai_request(run.job).get("stream") is True:
            sinks = self._sinks(run)
            if completion.content or not completion.tool_calls:
                sinks.emit(completion.content)
            if completion.tool_calls:
                sinks.tool_calls(completion.tool_calls)
            sinks.emit(None)
        return self._response(run, completion, {"provider": "ollama", "raw": dict(raw)})

    async def _acknowledge(self, run: _Run, calls: JobCalls) -> None:
        """From here on this node owes the gateway a result."""
        await calls.record_start(run.job)
        body = start_body(run.job, self._config.node_id, run.agent)
        await calls.start(str(run.job.get("job_id")), body)
        run.started = True

    def _limit(self, job: Job) -> asyncio.Timeout:
        return asyncio.timeout(runtime_limit_ms(job, self._config.job_timeout_ms) / 1000)

    def _request(self, run: _Run, *, limit: bool = True) -> dict[str, Any]:
        """The request as the job's policy allows it."""
        request = dict(openai_request(run.job))
        policy = policy_of(run.job)
        most = policy.get("max_output_tokens")
        if limit and isinstance(most, int | float) and is_number(most) and most > 0:
            request["max_tokens"] = math.floor(most)
        if request.get("tools") and policy.get("allow_tools") is False:
            del request["tools"]
            request.pop("tool_choice", None)
            run.warnings.append("tools_not_passed: policy.allow_tools is false")
        return request

    def _sinks(self, run: _Run) -> ChatSinks:
        model = openai_request(run.job).get("model")
        finish_reason = "stop"

        def add(delta: Mapping[str, Any], reason: str | None = None) -> None:
            created = self._clocks.unix_seconds()
            run.forwarder.add(chat_chunk(run.request_id, model, created, delta, reason))

        def emit(text: str | None) -> None:
            if text is None:
                add({}, finish_reason)
            else:
                add({"content": text})

        def tool_calls(calls: Sequence[JobToolCall]) -> None:
            nonlocal finish_reason
            finish_reason = "tool_calls"
            add(tool_calls_delta(calls))

        def status(phase: str) -> None:
            now = iso_time(self._clocks.wall())
            run.progress.append({"type": "status", **run.ids, "phase": phase, "at": now})

        return ChatSinks(emit, tool_calls, status)

    def _response(
        self, run: _Run, completion: Completion, metadata: Mapping[str, Any]
    ) -> dict[str, Any]:
        model = openai_request(run.job).get("model")
        created = self._clocks.unix_seconds()
        return chat_completion(run.request_id, model, completion, created, metadata)

    def _failure(self, run: _Run, error: Exception) -> tuple[str, str]:
        if isinstance(error, TimeoutError):
            limit = runtime_limit_ms(run.job, self._config.job_timeout_ms)
            return "timeout", f"the job ran into its timeout of {limit} ms"
        agent_key = None if run.agent is None else run.agent.api_key
        message = redact(str(error), (agent_key, run.attached_key))
        explicit = explicit_code(getattr(error, "code", None))
        if explicit is None and isinstance(error, GatewayError):
            return "upstream_error", message
        return explicit or code_from_message(message), message

    def _took_ms(self, run: _Run) -> int:
        return max(0, round((self._clocks.monotonic() - run.began) * 1000))

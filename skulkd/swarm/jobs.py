"""One job from its arrival to its result: checks, acknowledgement, run, pieces, result.

Whatever happens becomes a result; only the end of the process stops one half-way, and for that
the book remembers what was started. The order of the steps is the reference's.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from skulkd.swarm.agents import (
    Agent,
    Job,
    JobError,
    check_docdex,
    openai_request,
    select_agent,
    start_body,
)
from skulkd.swarm.answers import job_flaw
from skulkd.swarm.catalog import default_model, is_exposed
from skulkd.swarm.errors import GatewayError
from skulkd.swarm.event_forwarder import Chunk, EventForwarder
from skulkd.swarm.messages import (
    chat_completion,
    chunk,
    code_from_message,
    explicit_code,
    messages_to_prompt,
    ollama_request,
    redact,
)
from skulkd.swarm.node_config import NodeConfig
from skulkd.swarm.pacing import execution_class
from skulkd.swarm.script_values import is_number, iso_time, optional_text
from skulkd.swarm.telemetry import Counters, ExecutionClass
from skulkd.swarm.tool_calls import (
    ToolCall,
    ollama_tool_calls,
    tool_calls_choice,
    tool_calls_chunk,
)

Emit = Callable[[str | None], None]
"""One piece of text; None for the end of a stream."""
Result = dict[str, Any]
LONGEST_MS = 7 * 24 * 3_600_000
"""No policy of a gateway holds a slot for longer."""


@dataclass(frozen=True, slots=True)
class Work:
    """What an executor is asked for: a local model and a request in OpenAI's words."""

    model: str
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it; tokens are None where nobody counted."""

    content: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    tool_calls: Sequence[ToolCall] = ()


@dataclass(frozen=True, slots=True)
class Sinks:
    """Where an executor reports to while it works."""

    emit: Emit
    tool_calls: Callable[[Sequence[ToolCall]], None]
    status: Callable[[str], None]
    """A new phase of the work; the gateway learns of it with the result."""


class Executor(Protocol):
    """Runs jobs on models. Errors may carry a `code`; their text is redacted before it leaves."""

    async def chat(self, work: Work, sinks: Sinks) -> Outcome: ...

    async def ollama(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A body of Ollama's `/api/chat`, answered in its words."""
        ...


@dataclass(frozen=True, slots=True)
class Clocks:
    """Time for intervals never runs back; time for people may."""

    monotonic: Callable[[], float]
    wall: Callable[[], datetime]

    def unix_seconds(self) -> int:
        return math.floor(self.wall().timestamp())


@dataclass(frozen=True, slots=True)
class Ways:
    """How a job speaks to the gateway and to the book of this node."""

    start: Callable[[str, Mapping[str, Any]], Awaitable[None]]
    events: Callable[[str, list[Chunk]], Awaitable[None]]
    mark_started: Callable[[Job], Awaitable[None]]


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
    def job_id(self) -> str:
        return str(self.job.get("job_id"))

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
        *,
        docdex: bool = False,
    ) -> None:
        self._config = config
        self._agents = agents
        self._executor = executor
        self._counters = counters
        self._clocks = clocks
        self._docdex = docdex

    async def run(self, job: Job, attached_key: str | None, ways: Ways) -> Result:
        """The result that is owed to the gateway."""
        kind = _class_of(job)
        self._counters.begin(kind)
        began = self._clocks.monotonic()
        if job.get("node_id") != self._config.node_id:
            error = {"code": "validation_failed", "message": "job node_id does not match this node"}
            self._counters.finish(kind, 0.0, ok=False, code=error["code"])
            head = {"job_id": job.get("job_id"), "request_id": job.get("request_id")}
            failed = {"status": "failed", "pre_start_failure": True, "error": error}
            return {**head, **failed, "node_id": self._config.node_id}
        streams = openai_request(job).get("stream") is True
        send = (lambda batch: ways.events(str(job.get("job_id")), batch)) if streams else None
        run = _Run(job, attached_key, EventForwarder(send), began)
        try:
            result, code = await self._attempt(run, ways)
        except asyncio.CancelledError:
            run.forwarder.drop()
            self._counters.finish(kind, self._took_ms(run), ok=False, code="upstream_error")
            raise
        self._counters.finish(kind, self._took_ms(run), ok=code is None, code=code)
        return await self._complete(run, result)

    async def _attempt(self, run: _Run, ways: Ways) -> tuple[Result, str | None]:
        head: Result = {"job_id": run.job.get("job_id"), "request_id": run.job.get("request_id")}
        try:
            answer = await self._execute(run, ways)
        except Exception as error:  # noqa: BLE001 - whatever it is, the gateway must be told
            code, message = self._failure(run, error)
            early = {} if run.started else {"pre_start_failure": True}
            failure = {"code": code, "message": message}
            return {**head, "status": "failed", **early, "error": failure}, code
        return {**head, "status": "success", "openai_response": answer}, None

    async def _complete(self, run: _Run, result: Result) -> Result:
        left = await run.forwarder.finish()
        if left:
            result["stream_events"] = left
        if run.progress:
            result["progress_events"] = run.progress
        result["timing"] = {"local_latency_ms": self._took_ms(run)}
        result["node_id"] = self._config.node_id
        return result

    async def _execute(self, run: _Run, ways: Ways) -> dict[str, Any]:
        if (flaw := job_flaw(run.job)) is not None:
            raise JobError("validation_failed", flaw)
        if run.job.get("provider") == "ollama":
            return await self._execute_ollama(run, ways)
        if not messages_to_prompt(openai_request(run.job).get("messages")):
            raise JobError("validation_failed", "the prompt of the job is empty")
        agent = select_agent(run.job, self._agents(), self._config.exposure)
        run.agent = agent
        check_docdex(run.job, run.attached_key, offered=self._docdex)
        await self._acknowledge(run, ways)
        slug = optional_text(agent.get("slug"))
        adapter = optional_text(agent.get("adapter"))
        run.progress.append(
            {
                "type": "agent_selected",
                "job_id": run.job.get("job_id"),
                "request_id": run.job.get("request_id"),
                "agent_slug": slug,
                "adapter": adapter,
                "supports_tools": agent.get("supportsTools") is True,
            }
        )
        model = default_model(agent) or slug or ""
        async with self._limit(run.job):
            outcome = await self._executor.chat(Work(model, self._request(run)), self._sinks(run))
        metadata: dict[str, Any] = {
            "provider": "openai-compatible",
            "adapter": adapter,
            "local_model": model,
            "agent_slug": slug,
            "codali_run_id": run.request_id,
            "tool_calls_executed": 0,
            "touched_files": [],
            "warnings": run.warnings,
            "mode": "freeform",
        }
        return self._completion(run, outcome, metadata)

    async def _execute_ollama(self, run: _Run, ways: Ways) -> dict[str, Any]:
        """Names no agent, so none is looked for; but what the owner hides stays hidden."""
        body = ollama_request({**run.job, "openai_request": self._request(run, limit=False)})
        named = body["model"]
        for agent in self._agents():
            model = default_model(agent)
            if named not in {model, optional_text(agent.get("slug"))}:
                continue
            if not is_exposed(agent, self._config.exposure):
                raise JobError(
                    "selected_agent_unavailable", f"model {named} is not exposed by this node"
                )
            # The gateway knows models by the slugs that were advertised, too.
            body["model"] = model or named
        await self._acknowledge(run, ways)
        async with self._limit(run.job):
            raw = await self._executor.ollama(body)
        outcome = ollama_outcome(raw, run.request_id)
        if openai_request(run.job).get("stream") is True:
            sinks = self._sinks(run)
            if outcome.content or not outcome.tool_calls:
                sinks.emit(outcome.content)
            if outcome.tool_calls:
                sinks.tool_calls(outcome.tool_calls)
            sinks.emit(None)
        return self._completion(run, outcome, {"provider": "ollama", "raw": dict(raw)})

    async def _acknowledge(self, run: _Run, ways: Ways) -> None:
        """Once the gateway knows that it runs, the job is this node's to answer for."""
        await ways.mark_started(run.job)
        await ways.start(run.job_id, start_body(run.job, self._config.node_id, run.agent))
        run.started = True

    def _limit(self, job: Job) -> asyncio.Timeout:
        return asyncio.timeout(runtime_limit_ms(job, self._config.job_timeout_ms) / 1000)

    def _request(self, run: _Run, *, limit: bool = True) -> dict[str, Any]:
        """The request as the job's policy allows it."""
        asked = dict(openai_request(run.job))
        found = run.job.get("policy")
        policy = found if isinstance(found, Mapping) else {}
        most = policy.get("max_output_tokens")
        if limit and isinstance(most, int | float) and is_number(most) and most > 0:
            asked["max_tokens"] = math.floor(most)
        if asked.get("tools") and policy.get("allow_tools") is False:
            del asked["tools"]
            asked.pop("tool_choice", None)
            run.warnings.append("tools_not_passed: policy.allow_tools is false")
        return asked

    def _sinks(self, run: _Run) -> Sinks:
        model = openai_request(run.job).get("model")
        called = False

        def emit(text: str | None) -> None:
            created = self._clocks.unix_seconds()
            reason = "tool_calls" if called else "stop"
            run.forwarder.add(chunk(run.request_id, model, text, created, reason))

        def tool_calls(calls: Sequence[ToolCall]) -> None:
            nonlocal called
            called = True
            created = self._clocks.unix_seconds()
            run.forwarder.add(tool_calls_chunk(run.request_id, model, calls, created))

        def status(phase: str) -> None:
            run.progress.append(
                {
                    "type": "status",
                    "job_id": run.job.get("job_id"),
                    "request_id": run.job.get("request_id"),
                    "phase": phase,
                    "at": iso_time(self._clocks.wall()),
                }
            )

        return Sinks(emit, tool_calls, status)

    def _completion(
        self, run: _Run, outcome: Outcome, metadata: Mapping[str, Any]
    ) -> dict[str, Any]:
        model = openai_request(run.job).get("model")
        answer = chat_completion(
            run.request_id,
            model,
            outcome.content,
            (outcome.prompt_tokens, outcome.completion_tokens),
            self._clocks.unix_seconds(),
            metadata,
        )
        if outcome.tool_calls:
            answer["choices"][0] = tool_calls_choice(outcome.content, outcome.tool_calls)
        return answer

    def _failure(self, run: _Run, error: Exception) -> tuple[str, str]:
        if isinstance(error, TimeoutError):
            limit = runtime_limit_ms(run.job, self._config.job_timeout_ms)
            return "timeout", f"the job ran into its timeout of {limit} ms"
        config = run.agent.get("config") if run.agent is not None else None
        agent_key = config.get("apiKey") if isinstance(config, Mapping) else None
        message = redact(str(error), (agent_key, run.attached_key))
        explicit = explicit_code(getattr(error, "code", None))
        if explicit is None and isinstance(error, GatewayError):
            return "upstream_error", message
        return explicit or code_from_message(message), message

    def _took_ms(self, run: _Run) -> int:
        return max(0, round((self._clocks.monotonic() - run.began) * 1000))


def _class_of(job: Job) -> ExecutionClass:
    """What comes by a poll is chat or agentic, whatever it calls itself."""
    kind, _ = execution_class(job)
    return "agentic" if kind == "agentic" else "chat"


def ollama_outcome(raw: Mapping[str, Any], request_id: str) -> Outcome:
    """An answer of Ollama's `/api/chat`."""
    found = raw.get("message")
    message = found if isinstance(found, Mapping) else {}
    content = message.get("content")
    return Outcome(
        content if isinstance(content, str) else "",
        raw.get("prompt_eval_count"),
        raw.get("eval_count"),
        ollama_tool_calls(message.get("tool_calls"), request_id),
    )


def runtime_limit_ms(job: Job, default_ms: int) -> int:
    """How long the model may work on it."""
    policy = job.get("policy")
    limit = policy.get("max_runtime_ms") if isinstance(policy, Mapping) else None
    if isinstance(limit, int | float) and is_number(limit) and limit > 0:
        return min(math.floor(limit), LONGEST_MS)
    return default_ms

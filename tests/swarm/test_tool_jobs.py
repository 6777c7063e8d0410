"""Jobs with tools: what reaches the model, and its calls in the result, in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skulkd.swarm.chat_format import Completion, JobToolCall, ollama_message
from skulkd.swarm.job_runner import ChatSinks, ChatWork
from skulkd.swarm.session import GatewaySession
from tests.swarm.rig import Rig, job, rig
from tests.swarm.vectors import VECTORS, same

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
ASKED = {
    "model": "pub-model",
    "messages": [{"role": "user", "content": "hi"}],
    "tools": TOOLS,
    "tool_choice": "auto",
}
CALL = JobToolCall("call_1", "weather", '{"city":"Oslo"}')
OPENAI = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city":"Oslo"}'},
}


class CallingExecutor:
    """A model that calls its tool when it has one."""

    def __init__(self) -> None:
        self.works: list[ChatWork] = []
        self.bodies: list[Mapping[str, Any]] = []

    async def chat(self, work: ChatWork, sinks: ChatSinks) -> Completion:
        self.works.append(work)
        sinks.status("thinking")
        calls = [CALL] if work.request.get("tools") else []
        if work.request.get("stream") is True:
            if calls:
                sinks.tool_calls(calls)
            sinks.emit(None)
        return Completion("", 5, 7, calls)

    async def ollama(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self.bodies.append(body)
        return {"message": ollama_message("", [CALL] if body.get("tools") else [])}


def calling(node: Rig) -> tuple[GatewaySession, CallingExecutor]:
    executor = CallingExecutor()
    return node.another(executor=executor), executor


async def test_tools_reach_the_model_and_calls_the_gateway(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        session, executor = calling(node)
        await session.jobs.serve(job(openai_request=ASKED), None)
        assert executor.works[0].request["tools"] == TOOLS
        assert executor.works[0].request["tool_choice"] == "auto"
        answer = node.gateway.bodies("result")[0]["openai_response"]
        [choice] = answer["choices"]
        assert choice["message"] == {"role": "assistant", "content": None, "tool_calls": [OPENAI]}
        assert choice["finish_reason"] == "tool_calls"
        assert answer["metadata"]["warnings"] == []


async def test_calls_are_streamed(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        session, _ = calling(node)
        await session.jobs.serve(job(openai_request={**ASKED, "stream": True}), None)
        chunks = [c for body in node.gateway.bodies("events") for c in body["stream_events"]]
        assert chunks[0]["choices"][0]["delta"] == {"tool_calls": [{"index": 0, **OPENAI}]}
        assert chunks[-1]["choices"][0] == {
            "index": 0,
            "delta": {},
            "finish_reason": "tool_calls",
        }


async def test_tools_that_the_policy_forbids_are_not_dropped_in_silence(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        session, executor = calling(node)
        await session.jobs.serve(job(openai_request=ASKED, policy={"allow_tools": False}), None)
        assert not {"tools", "tool_choice"} & set(executor.works[0].request)
        answer = node.gateway.bodies("result")[0]["openai_response"]
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert "allow_tools" in answer["metadata"]["warnings"][0]


async def test_tools_of_ollama_jobs(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        session, executor = calling(node)
        ollama = job(provider="ollama", model="phi", openai_request={**ASKED, "stream": True})
        await session.jobs.serve(ollama, None)
        assert executor.bodies[0]["tools"] == TOOLS
        answer = node.gateway.bodies("result")[0]["openai_response"]
        [call] = answer["choices"][0]["message"]["tool_calls"]
        assert call["function"] == {"name": "weather", "arguments": '{"city": "Oslo"}'}
        assert (call["type"], bool(call["id"])) == ("function", True)
        raw = answer["metadata"]["raw"]["message"]["tool_calls"][0]
        assert raw == {"function": {"name": "weather", "arguments": {"city": "Oslo"}}}


async def test_an_ollama_job_may_name_a_model_by_its_slug(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        session, executor = calling(node)
        [agent] = [agent for agent in node.deps.agents() if agent.slug == "qwen-local"]
        for number, name in enumerate(("qwen-local", agent.model, "phi")):
            await session.jobs.serve(job(f"job-{number}", provider="ollama", model=name), None)
        asked = [body["model"] for body in executor.bodies]
        assert asked == [agent.model, agent.model, "phi"]


async def test_the_status_event_has_the_recorded_shape(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        session, _ = calling(node)
        await session.jobs.serve(job("job/1 a", request_id="req-1"), None)
        events = node.gateway.bodies("result")[0]["progress_events"]
        recorded = VECTORS["wire_captures_0_1_79"]["result_success"]["body"]["progress_events"]
        same(events, [recorded[0], {**recorded[1], "at": "<iso>"}])

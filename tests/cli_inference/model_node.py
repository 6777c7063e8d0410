"""A node that places models and streams answers: recorded shapes behind a real aiohttp server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from skulkd.wire.base import Memory
from skulkd.wire.chat import (
    ChatCompletionChoice,
    ChatCompletionChunk,
    ChatCompletionMessage,
    ChatCompletionResponse,
    CompletionTokensDetails,
    GenerationStats,
    PrefillProgressChunk,
    PromptTokensDetails,
    StreamingChoiceResponse,
    Usage,
)
from tests.cli.builders import as_json
from tests.cli.stock import KITE1, Seen, StockNode, recorded

MODEL = "mlx-community/Llama-3.2-1B-Instruct-4bit"
INSTANCE = "7f3c2a10-0b52-4a6e-9a61-1f0c6f1b2d01"
COMMAND = "29953048-c8a2-4a1b-a873-ff3577aaa410"
CHAT = "/v1/chat/completions"
READY: Any = {"RunnerReady": {}}


@dataclass(frozen=True)
class Frames:
    """An answer in pieces; an event in between is waited for."""

    pieces: Sequence[bytes | threading.Event]
    broken: bool = False
    """Hang up without an end."""


@dataclass
class ModelNode(StockNode):
    """A stock node whose chat answers are Frames."""

    chat: Callable[[Seen], Frames] | None = None
    begun: threading.Event = field(default_factory=threading.Event)
    """Set when the first piece of a chat answer has gone out."""

    def bodies(self, path: str) -> list[Any]:
        """The JSON bodies that were sent to a path."""
        return [json.loads(seen.body) for seen in self.seen if seen.path == path]

    def asked(self, method: str, path: str) -> bool:
        return any((seen.method, seen.path) == (method, path) for seen in list(self.seen))

    async def _handle(self, request: web.Request) -> web.StreamResponse:  # type: ignore[override]
        if request.path != CHAT or self.chat is None:
            return await super()._handle(request)
        seen = Seen(request.method, request.path_qs, await request.read(), None)
        self.seen.append(seen)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        # A client that hangs up is what some tests are about.
        with contextlib.suppress(ConnectionError):
            await self._stream(request, response, self.chat(seen))
        return response

    async def _stream(
        self, request: web.Request, response: web.StreamResponse, frames: Frames
    ) -> None:
        for piece in frames.pieces:
            if isinstance(piece, bytes):
                await response.write(piece)
                self.begun.set()
            else:
                await asyncio.get_running_loop().run_in_executor(None, piece.wait)
        if frames.broken:
            assert request.transport is not None
            request.transport.abort()
        else:
            await response.write_eof()


def data(document: object) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


def comment(text: str) -> bytes:
    return f": {text}\n\n".encode()


def chunk(text: str | None = None, thinking: str | None = None, end: Any = None) -> bytes:
    """One frame of an answer; the last one has an end and the usage."""
    delta = ChatCompletionMessage(role="assistant", content=text, reasoning_content=thinking)
    choice = StreamingChoiceResponse(index=0, delta=delta, finish_reason=end)
    frame = ChatCompletionChunk(
        id=COMMAND, created=1, model=MODEL, choices=[choice], usage=USAGE if end else None
    )
    return data(as_json(frame))


def a_whole_answer(text: str, reason: Any = "stop") -> Any:
    """An answer that was not streamed."""
    message = ChatCompletionMessage(role="assistant", content=text)
    choice = ChatCompletionChoice(index=0, message=message, finish_reason=reason)
    answer = ChatCompletionResponse(
        id=COMMAND, created=1, model=MODEL, choices=[choice], usage=USAGE
    )
    return as_json(answer)


USAGE = Usage(
    prompt_tokens=5,
    completion_tokens=2,
    total_tokens=7,
    prompt_tokens_details=PromptTokensDetails(),
    completion_tokens_details=CompletionTokensDetails(),
)
STATS = GenerationStats(
    prompt_tps=100.0,
    generation_tps=20.0,
    prompt_tokens=5,
    generation_tokens=2,
    peak_memory_usage=Memory.of(123),
)
PROGRESS = PrefillProgressChunk(model=MODEL, processed_tokens=3, total_tokens=5)
HEAD = [comment("keep-alive"), comment(f"command_id {COMMAND}")]
TAIL = [
    comment(f"generation_stats {STATS.model_dump_json(by_alias=False)}"),
    b"data: [DONE]\n\n",
]
PREFILL = comment(f"prefill_progress {PROGRESS.model_dump_json(by_alias=False)}")


def an_answer(*texts: str, thinking: str | None = None, end: str = "stop") -> Frames:
    """A whole stream as a node sends it."""
    thoughts = [chunk(thinking=thinking)] if thinking else []
    *first, last = [chunk(text) for text in texts[:-1]], chunk(texts[-1], end=end)
    pieces = [piece for group in first for piece in group]
    return Frames([*HEAD, PREFILL, *thoughts, *pieces, last, *TAIL])


def an_error(message: str, code: int, *before: bytes) -> Frames:
    """A stream that ends with an error frame."""
    return Frames([*HEAD, *before, data(error_body(message, code)), b"data: [DONE]\n\n"])


def error_body(message: str, code: int) -> dict[str, object]:
    return {"error": {"message": message, "type": "x", "param": None, "code": code}}


def a_state(first: Any = READY, second: Any = READY) -> Any:
    """kite1 to kite3 with one instance over two of them, in these runner statuses."""
    state = recorded("state")
    known = {"run-a": first, "run-b": second}
    state["runners"] = {name: runner for name, runner in known.items() if runner is not None}
    return state


def an_empty_state() -> Any:
    state = recorded("state")
    state["instances"], state["runners"] = {}, {}
    return state


def another_instance(state: Any, instance_id: str, model_id: str = MODEL) -> Any:
    """The state with a second instance, on kite1 alone."""
    twin = json.loads(json.dumps(recorded("state")["instances"][INSTANCE]))
    assignments = twin["MlxRingInstance"]["shardAssignments"]
    shard = assignments["runnerToShard"]["run-a"]
    shard["PipelineShardMetadata"]["modelCard"]["modelId"] = model_id
    assignments["modelId"] = model_id
    assignments["runnerToShard"] = {f"run-{instance_id}": shard}
    assignments["nodeToRunner"] = {KITE1: f"run-{instance_id}"}
    twin["MlxRingInstance"]["instanceId"] = instance_id
    state["instances"][instance_id] = twin
    state["runners"][f"run-{instance_id}"] = READY
    return state


def a_task(task_id: str, command_id: str, status: str = "Running") -> Any:
    return {
        "TextGeneration": {
            "taskId": task_id,
            "taskStatus": status,
            "instanceId": INSTANCE,
            "commandId": command_id,
            "ownerNode": KITE1,
            "taskParams": {"model": MODEL, "input": []},
        }
    }


def a_model(model_id: str, **fields: Any) -> dict[str, Any]:
    """An entry of the catalogue."""
    entry = {
        "id": model_id,
        "object": "model",
        "name": model_id.rpartition("/")[2],
        "description": "",
        "context_length": 131072,
        "tags": ["tensor"],
        "storage_size_megabytes": 696,
        "tasks": ["TextGeneration"],
        "is_custom": False,
        "family": "llama",
        "quantization": "4bit",
        "base_model": "Llama 3.2 1B",
    }
    return {**entry, **fields}


CATALOGUE = [
    a_model("skulk/tiny-llama", storage_size_megabytes=2, is_custom=True, quantization="fp32"),
    a_model(MODEL),
    a_model("mlx-community/Qwen3-0.6B-4bit", family="qwen3", tags=[], context_length=0),
]


def cancelled(command_id: str = COMMAND) -> Any:
    return {"message": "Command cancelled.", "command_id": command_id}


def the_states(*states: Any) -> Callable[[Seen], Any]:
    """Each state once, then the last one for ever."""
    left = list(states)
    return lambda seen: left.pop(0) if len(left) > 1 else left[0]


def model_node() -> ModelNode:
    """A node whose only model is ready and greets."""
    node = ModelNode()
    node.on("GET", "/state", lambda seen: a_state())
    node.on("GET", "/models", _models)
    node.on("POST", f"/v1/cancel/{COMMAND}", cancelled())
    node.chat = lambda seen: an_answer("Hello", " there", "!")
    return node


def _models(seen: Seen) -> Any:
    downloaded = "status=downloaded" in seen.path
    found = CATALOGUE[:2] if downloaded else CATALOGUE
    return {"object": "list", "data": found}

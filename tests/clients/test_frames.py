"""What every family writes for the same output, read with the types of its own client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import ollama
import pytest
from anthropic.types import ErrorResponse, Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from skulkd.api.anthropic.errors import error_response as anthropic_error
from skulkd.api.anthropic.frames import MessageFrames, messages_response
from skulkd.api.chat_chunks import ChatChunks
from skulkd.api.error_mapping import as_api_error
from skulkd.api.errors import ApiError
from skulkd.api.generation import Frames
from skulkd.api.ollama.errors import error_response as ollama_error
from skulkd.api.ollama.frames import OllamaFrames, figures_of
from skulkd.api.openai_stream import OpenAiFrames
from skulkd.api.responses.bodies import finished, new_response, whole_output
from skulkd.api.responses.frames import ResponseFrames
from skulkd.requests.answer import GeneratedAnswer
from skulkd.requests.errors import RequestError
from skulkd.requests.open_request import OpenRequest
from skulkd.runner.protocol import Output, OutputItem, PrefillProgress
from skulkd.wire.base import Memory
from skulkd.wire.chat import GenerationStats, PromptTokensDetails, ToolCallItem
from skulkd.wire.ids import TaskId
from skulkd.wire.ollama import OllamaChatResponse, OllamaGenerateResponse
from skulkd.wire.responses import ResponseCreateParams, ResponseObject
from skulkd.worker.task_stream import TaskEnded
from tests.inference.scripted import USAGE

TASK = TaskId("task-1")
MODEL = "org/name"
CALL = ToolCallItem(id="c1", name="paint", arguments='{"colour": "red"}')
THINKS = OutputItem(reasoning="hm")
SAYS = OutputItem(text="Hi")
CALLS = OutputItem(tool_calls=[CALL], finish_reason="tool_calls")
BODY = ResponseCreateParams(
    model=MODEL,
    input="hello",
    tools=[{"type": "function", "name": "paint", "parameters": {"type": "object"}}],
    tool_choice={"type": "function", "name": "paint"},
)


def _response_frames(keep: Callable[[ResponseObject], None] = lambda _: None) -> ResponseFrames:
    return ResponseFrames("cmd", new_response(BODY, "cmd", 1767323045), keep)


def _stream(frames: Frames, items: Iterable[OutputItem], error: ApiError | None = None) -> str:
    progress = PrefillProgress(task_id=TASK, processed=5, total=5)
    text = frames.opening(progress) + frames.progress(progress)
    text += "".join(frames.output(Output(task_id=TASK, items=[item])) for item in items)
    if error is not None:
        return text + frames.error(error)
    return text + frames.end(TaskEnded("Complete", usage=USAGE))


def _events(text: str) -> list[dict[str, Any]]:
    """Bodies of the events; each has the name that its body says."""
    found = []
    for frame in text.split("\n\n"):
        name, _, data = frame.partition("\ndata: ")
        if data:
            found.append(json.loads(data))
            assert name == f"event: {found[-1]['type']}"
    return found


def _messages(*items: OutputItem, error: ApiError | None = None) -> list[dict[str, Any]]:
    events = _events(_stream(MessageFrames("cmd", MODEL), items, error))
    reader: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
    for event in events:
        if event["type"] not in ("ping", "error"):
            reader.validate_python(event)
    return events


def _responses(*items: OutputItem, error: ApiError | None = None) -> list[dict[str, Any]]:
    events = _events(_stream(_response_frames(), items, error))
    reader: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    for event in events:
        reader.validate_python(event)
    assert [event["sequence_number"] for event in events] == list(range(1, len(events) + 1))
    return events


def _kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


BLOCK = ["content_block_start", "content_block_delta", "content_block_stop"]
SIGNED = ["content_block_start", *["content_block_delta"] * 2, "content_block_stop"]
CALLED = ["message_start", "ping", *SIGNED, *BLOCK, *BLOCK, "message_delta", "message_stop"]


def test_anthropic_streams_thinking_text_and_calls_as_blocks_in_order() -> None:
    events = _messages(THINKS, SAYS, CALLS)
    assert _kinds(events) == CALLED
    assert events[0]["message"]["usage"]["input_tokens"] == 5
    starts = [event for event in events if event["type"] == "content_block_start"]
    assert [start["content_block"]["type"] for start in starts] == ["thinking", "text", "tool_use"]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert [delta["type"] for delta in deltas] == [
        "thinking_delta", "signature_delta", "text_delta", "input_json_delta",
    ]  # fmt: skip
    assert json.loads(deltas[-1]["partial_json"]) == {"colour": "red"}
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert events[-2]["usage"]["output_tokens"] == 2


def test_anthropic_says_whole_what_it_streams() -> None:
    answer = GeneratedAnswer(1)
    answer.add(Output(task_id=TASK, items=[THINKS, SAYS, CALLS], usage=USAGE))
    body = messages_response(answer, "cmd", MODEL).model_dump()
    message = Message.model_validate(body)
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    assert message.stop_reason == "tool_use"


ITEM = ["output_item.added"]
DONE = ["output_item.done"]
REASONING = [
    *ITEM, "reasoning_summary_part.added", "reasoning_summary_text.delta",
    "reasoning_summary_text.done", "reasoning_summary_part.done", *DONE,
]  # fmt: skip
TEXT = [
    *ITEM, "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
    *DONE,
]  # fmt: skip
FUNCTION = [*ITEM, "function_call_arguments.delta", "function_call_arguments.done", *DONE]


@pytest.mark.parametrize(
    ("items", "kinds", "end"),
    [
        ([THINKS, SAYS, CALLS], [*REASONING, *TEXT, *FUNCTION], "completed"),
        ([OutputItem(text="x", finish_reason="length")], TEXT, "incomplete"),
        ([OutputItem(finish_reason="stop")], [one for one in TEXT if "delta" not in one],
         "completed"),
        ([THINKS, SAYS, THINKS, SAYS, OutputItem(finish_reason="stop")],
         [*REASONING, *TEXT] * 2, "completed"),
    ],
)  # fmt: skip
def test_responses_open_and_close_every_item_and_part(
    items: list[OutputItem], kinds: list[str], end: str
) -> None:
    events = _responses(*items)
    assert _kinds(events) == ["created", "in_progress", *kinds, end]
    output = events[-1]["response"]["output"]
    ids = [item["id"] for item in output]
    assert len(set(ids)) == len(ids)
    closed = [event["item"] for event in events if event["type"].endswith("item.done")]
    assert output == closed


def test_responses_say_whole_what_they_stream() -> None:
    answer = GeneratedAnswer(1)
    answer.add(Output(task_id=TASK, items=[THINKS, SAYS, CALLS], usage=USAGE))
    begun = new_response(BODY, "cmd", 1767323045)
    whole = finished(begun, whole_output(answer, "cmd"), "tool_calls", USAGE)
    body = whole.model_dump(by_alias=True)
    Response.model_validate(body)
    assert _responses(THINKS, SAYS, CALLS)[-1]["response"] == body


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "invalid_prompt"), (429, "rate_limit_exceeded"), (500, "server_error"),
     (503, "server_error")],
)  # fmt: skip
def test_a_response_that_fails_says_so_twice_and_is_kept_as_failed(status: int, code: str) -> None:
    kept: list[ResponseObject] = []
    text = _stream(_response_frames(kept.append), [SAYS], ApiError(status, "why"))
    error, failed = _events(text)[-2:]
    assert (error["type"], error["code"], error["message"]) == ("error", code, "why")
    assert failed["type"] == "response.failed"
    Response.model_validate(failed["response"])
    assert failed["response"]["error"] == {"code": code, "message": "why"}
    assert kept[-1].status == "failed"


def test_ollama_streams_thinking_text_and_calls_as_lines() -> None:
    frames = OllamaFrames(OpenRequest(), MODEL, chat=True)
    lines = _stream(frames, [THINKS, SAYS, CALLS]).splitlines()
    parts = [ollama.ChatResponse.model_validate_json(line) for line in lines]
    assert [part.message.thinking for part in parts] == ["hm", None, None, None]
    assert [part.message.content for part in parts] == ["", "Hi", "", ""]
    [call] = parts[2].message.tool_calls or ()
    assert (call.function.name, call.function.arguments) == ("paint", {"colour": "red"})
    assert [part.done for part in parts] == [False, False, False, True]
    assert (parts[-1].prompt_eval_count, parts[-1].eval_count) == (5, 2)


@pytest.mark.parametrize(
    ("chat", "body"), [(True, OllamaChatResponse), (False, OllamaGenerateResponse)]
)
def test_a_line_with_a_token_is_what_the_model_would_write(
    chat: bool, body: type[OllamaChatResponse | OllamaGenerateResponse]
) -> None:
    frames = OllamaFrames(OpenRequest(), 'a"b', chat=chat)
    text = 'q"\n\u2028é'
    line = frames.output(Output(task_id=TASK, items=[OutputItem(text=text)]))
    assert body.model_validate_json(line).model_dump_json() + "\n" == line


def test_ollamas_durations_are_those_of_what_was_computed() -> None:
    """20 of 25 prompt tokens were read in 2 s, 4 tokens followed the first within 1 s."""
    usage = USAGE.model_copy(
        update={
            "prompt_tokens": 25,
            "completion_tokens": 5,
            "prompt_tokens_details": PromptTokensDetails(cached_tokens=5),
        }
    )
    stats = GenerationStats(
        prompt_tps=10, generation_tps=4, prompt_tokens=25, generation_tokens=5,
        peak_memory_usage=Memory.of(0),
    )  # fmt: skip
    opened = OpenRequest()
    opened.opened_at -= 3.5
    opened.accepted_at = opened.opened_at + 2
    figures = figures_of(opened, "stop", usage, stats)
    assert (figures.prompt_eval_duration, figures.eval_duration) == (2_000_000_000, 1_000_000_000)
    assert figures.total_duration is not None
    assert figures.load_duration == figures.total_duration - 3_000_000_000
    assert figures_of(opened, "stop", None, None).prompt_eval_duration is None


def test_openai_streams_reasoning_text_and_calls_as_chunks() -> None:
    frames = OpenAiFrames("cmd", MODEL, ChatChunks("cmd", MODEL, 1), include_usage=True)
    text = _stream(frames, [THINKS, SAYS, CALLS])
    bodies = [line[6:] for line in text.split("\n\n") if line.startswith("data: {")]
    chunks = [ChatCompletionChunk.model_validate_json(body) for body in bodies]
    assert [len(chunk.choices) for chunk in chunks] == [1, 1, 1, 0]
    assert chunks[-1].usage
    assert text.endswith("data: [DONE]\n\n")


STATUSES = [400, 401, 403, 404, 408, 413, 415, 429, 500, 502, 503, 504, 507]


@pytest.mark.parametrize("status", STATUSES)
def test_every_error_has_a_type_that_anthropics_client_knows(status: int) -> None:
    response = anthropic_error(ApiError(status, "why", headers={"Retry-After": "3"}))
    body = ErrorResponse.model_validate(json.loads(response.body))  # type: ignore[arg-type]
    assert body.error.message == "why"
    assert (response.status, response.headers["Retry-After"]) == (status, "3")
    assert "request-id" in response.headers
    ending = _messages(SAYS, error=ApiError(status, "why"))[-1]
    assert ErrorResponse.model_validate(ending).error.type == body.error.type


def test_a_busy_node_tells_every_family_when_to_ask_again() -> None:
    busy = as_api_error(RequestError("busy", "full", retry_after_s=7))
    assert busy is not None
    for write in (anthropic_error, ollama_error):
        assert write(busy).headers["Retry-After"] == "7"
    last = _stream(OllamaFrames(OpenRequest(), MODEL, chat=False), [SAYS], busy).splitlines()[-1]
    assert json.loads(last) == {"error": "full"}

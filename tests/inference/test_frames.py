"""The bytes of streamed and whole answers, without any server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkd.api.chat_chunks import ChatChunks, chat_response
from skulkd.api.completions import CompletionChunks, completion_params
from skulkd.api.error_mapping import as_api_error
from skulkd.api.openai_stream import error_frame
from skulkd.api.sse import comment, data
from skulkd.requests.answer import GeneratedAnswer
from skulkd.requests.errors import RequestError, raise_if_failed
from skulkd.runner.protocol import Output, OutputItem
from skulkd.wire.chat import (
    ChatCompletionChunk,
    LogprobsContentItem,
    ToolCallItem,
    TopLogprobItem,
)
from skulkd.wire.completions import CompletionRequest, CompletionResponse
from skulkd.wire.ids import TaskId
from skulkd.worker.task_stream import TaskEnded
from tests.inference.scripted import USAGE

# As the specification prints it.
DELTA = (
    '{"role":"assistant","content":"Hi","reasoning_content":null,"name":null,"tool_calls":null,'
    '"tool_call_id":null,"function_call":null}'
)
FRAME = (
    'data: {"id":"c-1","object":"chat.completion.chunk","created":1767323045,"model":"org/name",'
    f'"choices":[{{"index":0,"delta":{DELTA},"logprobs":null,"finish_reason":null,"usage":null}}],'
    '"usage":null,"service_tier":null}\n\n'
)
LOGPROBS = [
    LogprobsContentItem(
        token="é\u2028",
        logprob=-0.5,
        top_logprobs=[TopLogprobItem(token="é\u2028", logprob=-0.5)],
    )
]


def chunks() -> ChatChunks:
    return ChatChunks("c-1", "org/name", 1767323045)


def parse(frame: str) -> Any:
    assert frame.startswith("data: ")
    assert frame.endswith("\n\n")
    assert len(frame.splitlines()) == 2
    return json.loads(frame.removeprefix("data: "))


def test_a_token_is_written_byte_for_byte_as_specified() -> None:
    assert chunks().frame(OutputItem(text="Hi")) == FRAME


@pytest.mark.parametrize(
    ("item", "delta"),
    [
        (OutputItem(text="a", choice=1), {"content": "a"}),
        (OutputItem(reasoning="hm"), {"content": None, "reasoning_content": "hm"}),
        (OutputItem(text="a", reasoning="b"), {"content": "a", "reasoning_content": "b"}),
        (OutputItem(finish_reason="stop"), {"content": ""}),
        (OutputItem(text="z", finish_reason="length"), {"content": "z"}),
        (OutputItem(text="z", logprobs=LOGPROBS), {"content": "z"}),
    ],
)
def test_every_kind_of_item_makes_a_frame_of_the_contract(
    item: OutputItem, delta: dict[str, Any]
) -> None:
    body = parse(chunks().frame(item, USAGE))
    ChatCompletionChunk.model_validate(body)
    assert body["usage"]["total_tokens"] == 7
    [choice] = body["choices"]
    assert choice["index"] == item.choice
    assert choice["finish_reason"] == item.finish_reason
    assert {key: choice["delta"][key] for key in delta} == delta
    assert list(choice["delta"]) == list(json.loads(DELTA))
    assert (choice["logprobs"] is None) == (item.logprobs is None)


def test_tool_calls_come_whole_and_numbered() -> None:
    calls = [ToolCallItem(id=f"x{at}", name="f", arguments='{"a": 1}') for at in range(2)]
    body = parse(chunks().frame(OutputItem(tool_calls=calls, finish_reason="tool_calls")))
    [choice] = body["choices"]
    assert choice["delta"]["content"] is None
    first, second = choice["delta"]["tool_calls"]
    assert first == {
        "id": "x0",
        "index": 0,
        "type": "function",
        "function": {"id": "x0", "name": "f", "arguments": '{"a": 1}'},
    }
    assert second["index"] == 1


@given(st.text(st.characters(exclude_categories=["Cs"])), st.booleans())
def test_any_text_survives_and_stays_on_one_line(text: str, last: bool) -> None:
    item = OutputItem(text=text, finish_reason="stop" if last else None, logprobs=None)
    assert parse(chunks().frame(item))["choices"][0]["delta"]["content"] == text
    assert parse(data(json.dumps({"t": text}, ensure_ascii=False))) == {"t": text}


def test_characters_that_some_take_for_line_ends_are_escaped() -> None:
    frame = chunks().frame(OutputItem(text="a\u2028b\u2029c\x85d", logprobs=LOGPROBS))
    assert not {"\u2028", "\u2029", "\x85"} & set(frame)
    assert "\\u2028" in frame
    assert "é" in frame, "everything else stays readable"
    assert comment("x", "a\u2028") == ": x a\\u2028\n\n"


def test_usage_of_its_own_has_no_choices() -> None:
    body = parse(chunks().usage_frame(USAGE))
    assert body["choices"] == []
    assert body["usage"]["prompt_tokens"] == 5


def test_items_of_several_choices_make_one_answer() -> None:
    answer = GeneratedAnswer(2)
    calls = [ToolCallItem(id="x", name="f", arguments="{}")]
    task = TaskId("t")
    answer.add(Output(task_id=task, items=[OutputItem(text="a"), OutputItem(choice=1, text="b")]))
    last = OutputItem(choice=1, tool_calls=calls, finish_reason="tool_calls")
    answer.add(Output(task_id=task, items=[OutputItem(reasoning="r", finish_reason="stop"), last]))
    answer.add(Output(task_id=task, usage=USAGE))
    body = chat_response(answer, "c", "m", 1, logprobs=False).model_dump()
    first, second = body["choices"]
    assert (first["message"]["content"], first["message"]["reasoning_content"]) == ("a", "r")
    assert (first["finish_reason"], second["finish_reason"]) == ("stop", "tool_calls")
    assert second["message"]["content"] == "b"
    assert second["message"]["tool_calls"][0]["function"]["name"] == "f"
    assert body["usage"]["total_tokens"] == 7


def test_a_text_completion_counts_offsets_over_all_frames() -> None:
    writer = CompletionChunks("c", "m", 1, echoed="ab")
    logprobs = [LogprobsContentItem(token="xy", logprob=-1.0, top_logprobs=[])]
    first = parse(writer.frame(OutputItem(text="xy", logprobs=logprobs)))
    second = parse(writer.frame(OutputItem(text="xy", logprobs=logprobs, finish_reason="length")))
    for body in (first, second):
        CompletionResponse.model_validate(body)
        assert body["object"] == "text_completion"
    assert [c["choices"][0]["text"] for c in (first, second)] == ["abxy", "xy"]
    offsets = [c["choices"][0]["logprobs"]["text_offset"] for c in (first, second)]
    assert offsets == [[2], [4]]


@pytest.mark.parametrize("prompt", ["", [], ["a", "b"]])
def test_a_text_completion_wants_one_prompt(prompt: Any) -> None:
    with pytest.raises(RequestError, match="one text"):
        completion_params(CompletionRequest(model="m", prompt=prompt))


@pytest.mark.parametrize(
    ("ended", "status", "code", "kind"),
    [
        (TaskEnded("Failed", "invalid_request_error", "no"), 400, 400, "invalid_request_error"),
        (TaskEnded("Failed", "runner_crashed", "signal=9"), 500, 500, "InternalServerError"),
        (TaskEnded("Failed", "instance_lost", "kite2"), 500, 500, "InternalServerError"),
        (TaskEnded("Failed", "node_stopping", "bye"), 503, 500, "InternalServerError"),
        (TaskEnded("TimedOut"), 500, 500, "InternalServerError"),
        (TaskEnded("Cancelled", "instance_deleted", "gone"), 500, 500, "InternalServerError"),
        (TaskEnded("Failed", "slow_reader", "slow"), 500, 500, "InternalServerError"),
    ],
)
def test_a_failure_is_a_status_before_and_a_frame_after_the_beginning(
    ended: TaskEnded, status: int, code: int, kind: str
) -> None:
    with pytest.raises(RequestError) as failed:
        raise_if_failed(ended)
    error = as_api_error(failed.value)
    assert error is not None
    assert error.status == status
    assert ("Retry-After" in error.headers) == ended.retryable
    body = parse(error_frame(error))["error"]
    assert (body["code"], body["type"], body["param"]) == (code, kind, None)
    assert (ended.error_message or "no reason") in body["message"]


@pytest.mark.parametrize("ended", [TaskEnded("Complete"), TaskEnded("Cancelled")])
def test_an_answered_or_cancelled_request_has_not_failed(ended: TaskEnded) -> None:
    raise_if_failed(ended)

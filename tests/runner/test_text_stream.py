"""Stops, reasoning and tool calls together: one order, no dependence on chunks."""

from __future__ import annotations

from hypothesis import given

from skulkd.runner.output.stopping import StopMatcher
from skulkd.runner.output.text_stream import ReasoningSplitter, TextStream
from skulkd.runner.output.tool_calls import ToolExtractor
from skulkd.runner.output.tool_formats import HERMES
from tests.runner.chunks import assembled, cut_texts

CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'


def run(pieces: list[str]) -> tuple[str, str, int, bool]:
    stream = TextStream(StopMatcher(["STOP"]), ReasoningSplitter(), ToolExtractor(HERMES))
    deltas = []
    for piece in pieces:
        deltas.append(stream.push(piece))
        if stream.ended:
            break
    deltas.append(stream.finish())
    content = "".join(delta.content for delta in deltas)
    reasoning = "".join(delta.reasoning for delta in deltas)
    return reasoning, content, len(stream.calls), stream.ended


def test_a_whole_answer_is_taken_apart() -> None:
    text = f"<think>why</think>I look it up. {CALL}STOP never seen"
    assert run(list(text)) == ("why", "I look it up. ", 1, True)


def test_a_stop_inside_a_call_leaves_the_text_of_the_call() -> None:
    assert run(['<tool_call>{"name": STOP']) == ("", '<tool_call>{"name": ', 0, True)


@given(cut_texts(assembled("<think>", "</think>", CALL, "STOP", " ", "word")))
def test_any_chunking_gives_the_same_answer(sample: tuple[str, list[str]]) -> None:
    text, pieces = sample
    assert run(pieces) == run([text])

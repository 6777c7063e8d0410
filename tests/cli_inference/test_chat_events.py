"""What the frames of a chat stream mean, and what a reply is worth."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkctl.chat.reply import Reply, failure_of, stats_text
from skulkctl.daemon.chat import (
    CONTEXT_LENGTH_EXCEEDED,
    Ended,
    Failed,
    Finished,
    Piece,
    Started,
    read_frame,
    read_whole,
)
from skulkctl.daemon.sse import Comment, Data, FrameParser
from tests.cli_inference.model_node import (
    COMMAND,
    PREFILL,
    PROGRESS,
    STATS,
    USAGE,
    a_whole_answer,
    an_answer,
    an_error,
    chunk,
    comment,
    error_body,
)


def nothing(left_out: str) -> None:
    """Nobody wants to know what was left out."""


def items(raw: bytes) -> list[Any]:
    return [item for frame in FrameParser().feed(raw) for item in read_frame(frame, nothing)]


def reply_to(pieces: list[bytes]) -> Reply:
    reply = Reply("m")
    for number, item in enumerate(items(b"".join(pieces)), start=1):
        reply.add(item, number / 10)
    return reply


def parts(answer: object) -> list[bytes]:
    return [piece for piece in getattr(answer, "pieces", []) if isinstance(piece, bytes)]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (comment("keep-alive"), []),
        (comment(f"command_id {COMMAND}"), [Started(COMMAND)]),
        (PREFILL, [PROGRESS]),
        (comment("prefill_progress nonsense"), []),
        (comment(f"generation_stats {STATS.model_dump_json(by_alias=False)}"), [STATS]),
        (chunk("Hi"), [Piece("Hi")]),
        (chunk("Unknown"), [Piece("Unknown")]),
        (chunk(thinking="hm"), [Piece("", "hm")]),
        (chunk(), []),
        (b"data: [DONE]\n\n", [Ended()]),
        (b"data: not json\n\n", []),
        (
            f"data: {json.dumps(error_body('gone', 500))}\n\n".encode(),
            [Failed("gone", 500)],
        ),
    ],
)
def test_a_frame_says_what_it_means(raw: bytes, expected: list[Any]) -> None:
    assert items(raw) == expected


def test_the_last_chunk_carries_text_reason_and_usage() -> None:
    piece, finished = items(chunk("!", end="stop"))
    assert piece == Piece("!")
    assert finished == Finished("stop", USAGE)


def test_a_whole_answer_gives_the_same_items() -> None:
    text = json.dumps(a_whole_answer("Hi"))
    expected = [Started(COMMAND), Piece("Hi"), Finished("stop", USAGE), Ended()]
    assert list(read_whole(text, nothing)) == expected
    assert list(read_whole(json.dumps(error_body("gone", 500)), nothing)) == [Failed("gone", 500)]


def test_a_finish_reason_of_the_future_does_not_cost_the_text() -> None:
    assert items(chunk("Hi", end="stop").replace(b'"stop"', b'"tired"')) == [Piece("Hi")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["choices", "delta", "error", "usage"]), inner)
    ),
    max_leaves=8,
)


@given(JSON, st.text(max_size=20))
def test_no_frame_breaks_the_reader(document: object, said: str) -> None:
    list(read_frame(Data(json.dumps(document)), nothing))
    list(read_frame(Data(said), nothing))
    list(read_frame(Comment(f"generation_stats {json.dumps(document)}"), nothing))
    list(read_frame(Comment(f"prefill_progress {said}"), nothing))
    list(read_whole(json.dumps(document), nothing))


def test_a_whole_reply_adds_up() -> None:
    reply = reply_to(parts(an_answer("Hello", "!", thinking="hm")))
    assert failure_of(reply) is None
    assert reply.item() == {
        "model": "m",
        "commandId": COMMAND,
        "text": "Hello!",
        "reasoning": "hm",
        "finishReason": "stop",
        "promptTokens": 5,
        "tokens": 2,
        "firstTokenSeconds": 0.3,
        "seconds": 0.8,
        "promptTokensPerSecond": 100.0,
        "tokensPerSecond": 20.0,
    }
    assert stats_text(reply) == (
        "5 prompt tokens at 100.0/s, 2 tokens at 20.0/s, first after 300ms, all after 800ms, stop"
    )


@pytest.mark.parametrize(
    ("message", "code", "hint"),
    [
        ("runner shut down", 500, "retrying may help"),
        ("context_length_exceeded: 9000 of 8192", 400, "do not retry unchanged"),
        ("context_length_exceeded: 9000 of 8192", 500, "do not retry unchanged"),
    ],
)
def test_an_error_frame_says_whether_asking_again_helps(message: str, code: int, hint: str) -> None:
    failure = failure_of(reply_to(parts(an_error(message, code, chunk("Hi")))))
    assert failure is not None
    assert failure.why == (message,)
    assert failure.hints[0].startswith(hint)
    is_coded = message.startswith(CONTEXT_LENGTH_EXCEEDED)
    assert failure.code == (CONTEXT_LENGTH_EXCEEDED if is_coded else None)


def test_a_stream_without_an_end_is_a_failure() -> None:
    pieces = parts(an_answer("Hello", "!"))
    assert failure_of(reply_to(pieces[:-1])) is not None
    assert failure_of(reply_to(pieces[:4])) is not None

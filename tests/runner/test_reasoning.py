"""Reasoning and answer are told apart, however the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import given

from skulkd.runner.output.text_stream import ReasoningSplitter
from tests.runner.chunks import assembled, cut_texts


def split(pieces: list[str], *, opened: bool) -> tuple[str, str]:
    splitter = ReasoningSplitter(opened=opened)
    parts = [*(splitter.push(piece) for piece in pieces), splitter.finish()]
    return "".join(part.reasoning for part in parts), "".join(part.content for part in parts)


@pytest.mark.parametrize(
    ("text", "opened", "reasoning", "content"),
    [
        ("just an answer", False, "", "just an answer"),
        ("<think>why</think>because", False, "why", "because"),
        ("\n<think>\nwhy\n</think>\n\nbecause\n", False, "why", "because\n"),
        ("why</think>because", True, "why", "because"),
        ("\nwhy so</think>\n", True, "why so", ""),
        ("never closed ", True, "never closed", ""),
        ("answer with <think> inside", False, "", "answer with <think> inside"),
        ("<thin", False, "", "<thin"),
        (" \n", False, "", " \n"),
        ("a </thi b</think>c", True, "a </thi b", "c"),
        ("<think></think>c", False, "", "c"),
    ],
)
def test_reasoning_stands_before_the_answer(
    text: str, opened: bool, reasoning: str, content: str
) -> None:
    assert split([text], opened=opened) == (reasoning, content)
    assert split(list(text), opened=opened) == (reasoning, content)


SAMPLES = assembled("<think>", "</think>", " ", "\n", "word")


@given(cut_texts(SAMPLES))
def test_any_chunking_gives_the_same_parts(sample: tuple[str, list[str]]) -> None:
    text, pieces = sample
    assert split(pieces, opened=False) == split([text], opened=False)


@given(cut_texts(SAMPLES))
def test_any_chunking_of_opened_reasoning_gives_the_same_parts(
    sample: tuple[str, list[str]],
) -> None:
    text, pieces = sample
    assert split(pieces, opened=True) == split([text], opened=True)


def test_a_marker_is_never_shown_in_part() -> None:
    splitter = ReasoningSplitter(opened=True)
    said = [splitter.push(piece).reasoning for piece in ("why", "</th", "ink>", "x")]
    assert said == ["why", "", "", ""]
    assert not splitter.in_reasoning

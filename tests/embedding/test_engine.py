"""The embedding engine in a real runner process: batches, limits, cancellation, phases, traces."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.utils import load_model
from tokenizers import Tokenizer

from skulkd.runner.protocol import Cancel, Phase, TaskTrace
from skulkd.wire.ids import TaskId
from tests.embedding.embedder import Embedder
from tests.embedding.models import LIMIT
from tests.embedding.plain_forward import PlainBert
from tests.runner.runner_process import Runner

TEXTS = ["a", "hello there", "the quick brown fox", "x" * 30, "one, two, three", "b"]


def test_a_batch_gives_what_each_input_gives_alone(encoder: Embedder) -> None:
    """Padding must not leak into a row, whatever the lengths beside it and whoever sent it."""
    together = [encoder.send(TEXTS), encoder.send(TEXTS[::-1])]
    batches = [encoder.vectors(task_id) for task_id in together]
    alone = np.concatenate([encoder.embed([text]) for text in TEXTS])
    assert np.abs(batches[0] - alone).max() < 1e-5
    assert np.abs(batches[1] - alone[::-1]).max() < 1e-5
    plain = PlainBert(encoder.model)
    assert np.abs(alone - np.stack([plain.embed(text) for text in TEXTS])).max() < 1e-5
    assert np.abs(alone[0] - alone[1]).max() > 1e-2


def test_requests_that_wait_share_a_step(encoder: Embedder) -> None:
    tasks = [encoder.send([text]) for text in TEXTS * 3]
    for task_id in tasks:
        encoder.outputs(task_id)
    wanted = set(tasks)
    shared = [
        phase.entry.attrs["tasks"]
        for phase in encoder.runner.entries()
        if phase.entry.detail == "embedding_forward" and phase.entry.task_id in wanted
    ]
    assert max(int(str(tasks_in_step)) for tasks_in_step in shared) > 1


def test_token_ids_are_as_good_as_the_text_they_stand_for(encoder: Embedder) -> None:
    tokenizer = Tokenizer.from_file(str(encoder.model / "tokenizer.json"))
    tokenizer.no_padding()
    text = "hello there"
    bare, whole = (tokenizer.encode(text, add_special_tokens=s).ids for s in (False, True))
    expected, *same = encoder.embed([text, bare, whole])
    assert len(whole) == len(bare) + 2
    for vector in same:
        assert np.abs(vector - expected).max() < 1e-5


def test_usage_counts_the_tokens_of_all_inputs(encoder: Embedder) -> None:
    outputs = encoder.outputs(encoder.send(["abc", [7, 8]]))
    [usage] = [output.usage for output in outputs if output.usage is not None]
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (5 + 4, 0, 9)
    assert outputs[-1].queued_s is not None


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        (["fine", "a " * 60], "context_length_exceeded: input[1] has 60 tokens"),
        ([[5] * 60], "input[0] has 60 tokens"),
        (["fine", [5, 100_000]], "input[1]: token 100000 is not in the vocabulary"),
        ([[-1]], "input[0]: token -1"),
    ],
    ids=["text", "tokens", "unknown token", "negative token"],
)
def test_an_input_that_does_not_fit_is_refused_by_its_index(
    encoder: Embedder, inputs: list[str | list[int]], named: str
) -> None:
    refused = encoder.refusal(inputs)
    assert named in (refused.error_message or "")
    assert refused.error_type == "invalid_request_error"


def test_truncation_keeps_the_beginning_of_the_input(encoder: Embedder) -> None:
    room = LIMIT - 2
    cut, exact = encoder.embed(["a " * 60, "a " * room], truncate=True)
    assert np.abs(cut - exact).max() < 1e-5
    assert encoder.embed(["a " * room]).shape == (1, 32)


def test_a_cancelled_request_ends_and_the_next_is_answered(encoder: Embedder) -> None:
    long = encoder.send(["x" * 40] * 2000)
    encoder.runner.send(Cancel(task_id=long))
    assert encoder.runner.answer(long).status.status == "Cancelled"
    assert encoder.embed(["b"]).shape == (1, 32)


def test_a_long_list_does_not_delay_a_short_one(encoder: Embedder) -> None:
    long, short = encoder.send(["x" * 40] * 1000), encoder.send(["b"])
    encoder.outputs(short)
    encoder.runner.send(Cancel(task_id=long))
    assert encoder.runner.answer(long).status.status == "Cancelled"


def test_phases_and_trace_of_a_request(encoder: Embedder) -> None:
    task_id = encoder.send(TEXTS, trace=True)
    trace = encoder.runner.until(TaskTrace, lambda trace: trace.task_id == task_id)
    encoder.outputs(task_id)
    assert _shown(encoder.runner, task_id) == [
        ("task_submission", "task_acknowledged"),
        ("task_submission", "submit_text_embedding"),
        ("prompt_build", "enter embedding_tokenize"),
        ("prompt_build", "exit embedding_tokenize"),
        ("task_submission", "batch_queue_admitted"),
        ("prefill_stream", "enter embedding_forward"),
        ("prefill_stream", "exit embedding_forward"),
        ("completion", "enter embedding_pooling"),
        ("completion", "exit embedding_pooling"),
        ("completion", "enter embedding_normalization"),
        ("completion", "exit embedding_normalization"),
        ("completion", "embedding_complete"),
    ]
    assert {event.task_kind for event in trace.traces} == {"embedding"}
    assert all("embedding" in event.tags for event in trace.traces)
    names = [event.name for event in trace.traces]
    assert (names[0], names[-1]) == ("queued", "finish")
    assert {"tokenize", "forward", "pooling", "normalization"} <= set(names)


def _shown(runner: Runner, task_id: TaskId) -> list[tuple[str, str]]:
    def event(phase: Phase) -> str:
        entry = phase.entry
        return f"{entry.event} {entry.detail}" if entry.event in ("enter", "exit") else entry.event

    return [(phase.entry.phase, event(phase)) for phase in runner.entries(task_id)]


def test_a_runner_refuses_what_its_model_does_not_serve(encoder: Embedder) -> None:
    refused = encoder.runner.chat("hello").status
    assert refused.status == "Failed"
    assert "does not serve TextGeneration" in (refused.error_message or "")


def test_a_decoder_gives_the_hidden_state_of_its_last_token(decoder: Embedder) -> None:
    """In a batch of mixed lengths, against mlx-lm's own model with one text at a time."""
    mx.disable_compile()
    model, _ = load_model(decoder.model)
    tokenizer = Tokenizer.from_file(str(decoder.model / "tokenizer.json"))
    expected = []
    for text in TEXTS:
        hidden = model.model(mx.array([tokenizer.encode(text).ids]))[0, -1]
        expected.append(np.array(hidden / mx.linalg.norm(hidden)))
    vectors = decoder.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), 64)
    assert np.abs(vectors - np.stack(expected)).max() < 1e-4


def test_shorter_vectors_are_normalised_again(decoder: Embedder) -> None:
    whole, short = decoder.embed(TEXTS), decoder.embed(TEXTS, dimensions=16)
    assert short.shape == (len(TEXTS), 16)
    cut = whole[:, :16]
    assert np.abs(short - cut / np.linalg.norm(cut, axis=1, keepdims=True)).max() < 1e-5

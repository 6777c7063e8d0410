"""Several ranks answer as one does: greedy text, joins, cancels, options, prefix cache."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from skulkd.runner.exits import ExitCode
from skulkd.runner.protocol import GenerationOptions, Output, Phase, PrefillProgress
from skulkd.wire.runners import RunnerFailed
from tests.runner.rank_group import MakeGroup, RankGroupOfRunners, marks
from tests.runner.runner_process import Runner
from tests.runner.sliding_model import make_sliding_model

NO_END = GenerationOptions(logit_bias={"2": -100.0})
LONG = "tell me about the sea " * 6
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "boolean"}}}


@pytest.mark.parametrize(
    ("ranks", "tensor"), [(2, False), (3, False), (2, True)], ids=["pipe2", "pipe3", "tensor2"]
)
def test_greedy_answers_are_those_of_one_rank(
    group: MakeGroup, runner: Runner, tiny: Path, ranks: int, tensor: bool
) -> None:
    several = group(ranks, tiny, tensor=tensor)
    for text in ("hello", LONG):
        mine = several.chat(text, extra=NO_END, max_output_tokens=24)
        assert mine.text() == runner.chat(text, extra=NO_END, max_output_tokens=24).text()
    several.rest()
    assert several.stop() == [ExitCode.CLEAN] * ranks


def test_windows_that_slide_are_right_in_a_pipeline(
    group: MakeGroup, fork: Any, tiny: Path, tmp_path: Path
) -> None:
    """Half of the layers see a window, and the masks of one stage depend on layers of the other."""
    model = make_sliding_model(tiny, tmp_path / "sliding")
    alone = fork()
    alone.configure(model)
    alone.become_ready()
    pair = group(2, model)
    question = "longer than the window " * 4
    for _ in range(2):
        mine = pair.chat(question, extra=NO_END, max_output_tokens=16)
        assert mine.text() == alone.chat(question, extra=NO_END, max_output_tokens=16).text()
    assert mine.usage.prompt_tokens_details.cached_tokens == mine.usage.prompt_tokens - 1


@pytest.mark.parametrize(
    ("extra", "params"),
    [
        (NO_END, {"logprobs": True, "top_logprobs": 3}),
        (GenerationOptions(frequency_penalty=1.5, logit_bias={"2": -100.0}), {}),
        (NO_END, {"temperature": 1.0, "seed": 7}),
        (GenerationOptions(response_format=SCHEMA), {}),
        (GenerationOptions(n=3, logit_bias={"2": -100.0}), {}),
        (NO_END, {"stop": ["e", "a", "o", "i", "<"], "max_output_tokens": 60}),
    ],
    ids=["logprobs", "penalty", "seed", "schema", "choices", "stop"],
)
def test_what_a_request_asks_for_does_not_depend_on_the_ranks(
    pair: RankGroupOfRunners,
    runner: Runner,
    extra: GenerationOptions,
    params: dict[str, Any],
) -> None:
    mine = pair.chat("options", extra=extra, **{"max_output_tokens": 12, **params})
    alone = runner.chat("options", extra=extra, **{"max_output_tokens": 12, **params})
    for choice in range(extra.n):
        assert mine.text(choice) == alone.text(choice)
        assert mine.finish_reason(choice) == alone.finish_reason(choice)
    ours, theirs = (
        [part for item in answer.items() for part in item.logprobs or []]
        for answer in (mine, alone)
    )
    assert [one.token for one in ours] == [one.token for one in theirs]
    assert [r.token for one in ours for r in one.top_logprobs] == [
        r.token for one in theirs for r in one.top_logprobs
    ]


def test_requests_join_and_leave_while_others_decode(
    pair: RankGroupOfRunners, runner: Runner
) -> None:
    texts = [f"number {number} " * (1 + number) for number in range(5)]
    long = pair.ask("steady", NO_END, max_output_tokens=120)
    pair.leader.until(Output, lambda m: m.task_id == long)
    tasks = [
        pair.ask(text, NO_END, max_output_tokens=10 + 7 * number)
        for number, text in enumerate(texts)
    ]
    for number, (text, task) in enumerate(zip(texts, tasks, strict=True)):
        alone = runner.chat(text, extra=NO_END, max_output_tokens=10 + 7 * number)
        assert pair.answer(task).text() == alone.text()
    steady = runner.chat("steady", extra=NO_END, max_output_tokens=120)
    assert pair.answer(long).text() == steady.text()


def test_the_next_turn_is_known_to_every_rank(pair: RankGroupOfRunners, runner: Runner) -> None:
    first = pair.chat("a story " * 20, max_output_tokens=8)
    again = pair.chat("a story " * 20 + "and more", max_output_tokens=8)
    assert again.usage.prompt_tokens_details.cached_tokens > 100
    assert first.text() == runner.chat("a story " * 20, max_output_tokens=8).text()
    assert again.text() == runner.chat("a story " * 20 + "and more", max_output_tokens=8).text()


def test_a_cancel_ends_a_request_on_every_rank(pair: RankGroupOfRunners) -> None:
    answered = pair.ask("for ever", NO_END, max_output_tokens=3000)
    pair.leader.until(Output, lambda m: m.task_id == answered)
    pair.cancel(answered)
    read = pair.ask("z" * 3000)
    pair.leader.until(PrefillProgress, lambda m: m.task_id == read)
    pair.cancel(read)
    for rank in pair.ranks:
        for task in (answered, read):
            assert rank.answer(task).status.status == "Cancelled"
    assert pair.chat("still there", max_output_tokens=2).status.status == "Complete"


def test_a_task_that_comes_late_to_a_rank_is_waited_for(
    pair: RankGroupOfRunners, runner: Runner
) -> None:
    leader, follower = pair.ranks
    pair.chat("in time", max_output_tokens=2)
    task = pair.ask("late", NO_END, only=[leader], max_output_tokens=6)
    follower.until(Phase, lambda m: (m.phase, m.entry.event) == ("task_agreement", "enter"))
    pair._count -= 1
    assert pair.ask("late", NO_END, only=[follower], max_output_tokens=6) == task
    alone = runner.chat("late", extra=NO_END, max_output_tokens=6)
    assert leader.answer(task).text() == alone.text()
    agreed = follower.until(Phase, lambda m: m.entry.event == "batch_tasks_agreed")
    assert agreed.entry.attrs["different_count"] == 1


def test_a_refused_request_is_refused_on_every_rank(pair: RankGroupOfRunners) -> None:
    task = pair.ask("too long", max_output_tokens=100_000)
    for rank in pair.ranks:
        assert rank.answer(task).status.status == "Failed"
    assert pair.chat("fine", max_output_tokens=2).status.status == "Complete"


def test_every_rank_writes_its_phases(pair: RankGroupOfRunners) -> None:
    task = pair.ask("phases", NO_END, max_output_tokens=30)
    for rank in pair.ranks:
        rank.answer(task)
        own = marks(rank, task)
        for wanted in (
            ("prompt_build", "prompt_tokenized", None),
            ("kv_cache_lookup", "kv_cache_result", None),
            ("prefill_barrier", "enter", "prefill_mx_barrier"),
            ("prefill_pipeline", "enter", "pipeline_parallel_prefill"),
            ("prefill_pipeline", "pipeline_prefill_start", None),
            ("prefill_pipeline", "pipeline_prefill_complete", None),
            ("decode_stream", "batch_first_token", None),
            ("decode_stream", "decode_token_progress", None),
            ("completion", "batch_decode_complete", None),
        ):
            assert wanted in own
        boot = marks(rank)
        assert ("connect_group", "exit", "initialize_mlx") in boot
        assert ("task_agreement", "exit", "batch_mx_all_gather_tasks") in boot


@pytest.mark.parametrize("tensor", [False, True], ids=["pipeline", "tensor"])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_ends_the_others(
    group: MakeGroup, tiny: Path, victim: int, tensor: bool
) -> None:

    several = group(2, tiny, tensor=tensor)
    task = several.ask("for ever", NO_END, max_output_tokens=3000)
    several.leader.until(Output, lambda m: m.task_id == task)
    os.kill(several.ranks[victim].pid, signal.SIGKILL)
    survivor = several.ranks[1 - victim]
    survivor.drain()
    assert survivor.wait_exit() == ExitCode.GROUP_LOST
    failures = [m.status for m in survivor.heard if type(m).__name__ == "Status"]
    assert isinstance(failures[-1], RunnerFailed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "tensor"), [(2, False), (3, False), (3, True)], ids=["pipe2", "pipe3", "tensor3"]
)
def test_a_real_model_says_the_same_on_several_ranks(
    group: MakeGroup, fork: Any, ranks: int, tensor: bool
) -> None:
    model = Path(sys.prefix) / "demo-models" / "skulk--SmolLM2-135M-Instruct"
    if not model.is_dir():
        pytest.skip("the demo model is not here; `make demo` fetches it")
    alone = fork()
    alone.configure(model)
    alone.become_ready()
    question = GenerationOptions(prompt="The capital of France is")
    several = group(ranks, model, tensor=tensor)
    mine = several.chat(extra=question, max_output_tokens=10)
    assert "Paris" in mine.text()
    assert mine.text() == alone.chat(extra=question, max_output_tokens=10).text()

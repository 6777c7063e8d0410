"""What was computed once is not computed again, and memory stays bounded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from skulkd.runner.protocol import GenerationOptions
from tests.runner.reference import Reference
from tests.runner.runner_process import Answer, Runner
from tests.runner.sliding_model import make_sliding_model

LONG = "tell me about the sea, " * 12
NO_END = GenerationOptions(logit_bias={"2": -100.0})


def cached(answer: Answer) -> int:
    return int(answer.usage.prompt_tokens_details.cached_tokens)


def test_the_next_turn_computes_only_what_is_new(runner: Runner, reference: Reference) -> None:
    first = runner.chat(LONG, max_output_tokens=30)
    assert cached(first) == 0
    messages = [
        {"role": "user", "content": LONG},
        {"role": "assistant", "content": first.text()},
        {"role": "user", "content": "and the sky?"},
    ]
    second = runner.chat(messages=messages, max_output_tokens=30)
    assert cached(second) >= first.usage.prompt_tokens
    # What came from memory answers as what is computed afresh.
    assert second.text() == reference.greedy(messages, 30)["text"]


def test_a_repeated_prompt_computes_one_token(runner: Runner) -> None:
    first = runner.chat("repeat this " * 5, max_output_tokens=10)
    second = runner.chat("repeat this " * 5, max_output_tokens=10)
    assert cached(second) == first.usage.prompt_tokens - 1
    assert second.text() == first.text()


def test_a_known_prompt_serves_several_choices(runner: Runner) -> None:
    first = runner.chat("many " * 8, max_output_tokens=10)
    again = runner.chat("many " * 8, extra=GenerationOptions(n=3), max_output_tokens=10)
    assert {again.text(choice) for choice in range(3)} == {first.text()}


def test_an_answer_ended_by_a_stop_string_is_remembered_too(runner: Runner) -> None:
    whole = runner.chat("stop and go " * 4, extra=NO_END, max_output_tokens=40).text()
    stopped = runner.chat(
        "stop and come " * 4, extra=NO_END, max_output_tokens=40, stop=[whole[3], "e", "<"]
    )
    assert stopped.finish_reason() == "stop"
    again = runner.chat("stop and come " * 4, extra=NO_END, max_output_tokens=5)
    assert cached(again) == again.usage.prompt_tokens - 1


def test_the_oldest_prompt_makes_room(fork: Callable[[], Runner], tiny: Path) -> None:
    runner = fork()
    # One token is 8 layers of 64 floats, twice: 4 KiB. Two prompts of 100 tokens do not fit.
    runner.configure(tiny, prefix_cache_bytes=4096 * 180)
    runner.become_ready()
    one, two = "1" * 80, "2" * 80
    runner.chat(one, max_output_tokens=4)
    assert cached(runner.chat(one, max_output_tokens=4)) > 80
    runner.chat(two, max_output_tokens=4)
    assert cached(runner.chat(two, max_output_tokens=4)) > 80
    assert cached(runner.chat(one, max_output_tokens=4)) < 40


def test_questions_below_one_beginning_make_room_before_another_prompt(
    fork: Callable[[], Runner], tiny: Path
) -> None:
    runner = fork()
    # Three prompts of about 105 tokens fit.
    runner.configure(tiny, prefix_cache_bytes=4096 * 330)
    runner.become_ready()
    other, shared = "1" * 80, "2" * 80
    runner.chat(other, max_output_tokens=4)
    for question in ("a", "b", "c"):
        runner.chat(shared + question, max_output_tokens=4)
    assert cached(runner.chat(shared + "d", max_output_tokens=4)) > 80
    assert cached(runner.chat(other, max_output_tokens=4)) > 80


def test_caches_that_cannot_be_cut_back_keep_whole_prompts(
    fork: Callable[[], Runner], tiny: Path, tmp_path: Path
) -> None:
    runner = fork()
    runner.configure(make_sliding_model(tiny, tmp_path / "sliding"))
    runner.become_ready()
    question = "longer than the window " * 4
    first = runner.chat(question, extra=NO_END, max_output_tokens=20)
    again = runner.chat(question, extra=NO_END, max_output_tokens=20)
    assert cached(again) == again.usage.prompt_tokens - 1
    extra = NO_END.model_copy(update={"n": 2})
    both = runner.chat(question + "!", extra=extra, max_output_tokens=20)
    single = runner.chat(question + "!", extra=NO_END, max_output_tokens=20)
    assert {again.text(), first.text()} == {first.text()}
    assert {both.text(0), both.text(1)} == {single.text()}


def test_a_cache_of_no_bytes_remembers_nothing(fork: Callable[[], Runner], tiny: Path) -> None:
    runner = fork()
    runner.configure(tiny, prefix_cache_bytes=0)
    runner.become_ready()
    runner.chat("twice", max_output_tokens=4)
    assert cached(runner.chat("twice", max_output_tokens=4)) == 0

"""Answers of a real runner: the same tokens as mlx-lm, alone and together."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skulkd.runner.protocol import GenerationOptions, Output, PrefillProgress
from tests.runner.reference import Reference
from tests.runner.runner_process import Runner

QUESTIONS = ["hello", "what is the capital of France?", "count to ten", "x" * 90]
NO_END = GenerationOptions(logit_bias={"2": -100.0})


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize("question", QUESTIONS, ids=range(4))
def test_a_greedy_answer_is_that_of_mlx_lm(
    runner: Runner, reference: Reference, question: str
) -> None:
    expected = reference.greedy(user(question), 48)
    answer = runner.chat(question, max_output_tokens=48)
    assert answer.text() == expected["text"]
    assert answer.usage.completion_tokens == expected["tokens"]
    assert answer.usage.prompt_tokens == expected["prompt"]


def test_four_requests_together_answer_as_they_do_alone(
    runner: Runner, reference: Reference
) -> None:
    expected = [reference.greedy(user(question), 40)["text"] for question in QUESTIONS]
    tasks = [runner.ask(question, max_output_tokens=40) for question in QUESTIONS]
    assert [runner.answer(task).text() for task in tasks] == expected


def test_a_short_request_joins_a_long_one_and_ends_first(runner: Runner) -> None:
    long = runner.ask("tell me a story", NO_END, max_output_tokens=150)
    runner.until(PrefillProgress, lambda m: m.task_id == long)
    short = runner.ask("hi", NO_END, max_output_tokens=5)
    joined = runner.answer(short).stats
    assert (joined.serving_batches, joined.in_flight_at_admission) == (True, 2)
    assert not runner_has_ended(runner, long)
    whole = runner.answer(long)
    assert whole.usage.completion_tokens == 150
    assert whole.stats.in_flight_at_admission == 1


def test_a_runner_with_one_place_says_so_and_how_long_a_request_waited(
    fork: Callable[..., Runner], tiny: Path
) -> None:
    runner = fork(SKULK_FAULTS="delay@*:0.02")
    runner.configure(tiny, max_concurrent=1)
    runner.become_ready()
    first = runner.ask("a story", NO_END, max_output_tokens=20)
    second = runner.ask("another", NO_END, max_output_tokens=2)
    answers = [runner.answer(first), runner.answer(second)]
    told = [(one.stats.serving_batches, one.stats.in_flight_at_admission) for one in answers]
    assert told == [(False, 1), (False, 1)]
    waited = [one.outputs[-1].queued_s for one in answers]
    # Twenty steps of at least 20 ms each.
    assert waited[0] is not None and waited[1] is not None
    assert waited[1] - waited[0] > 0.2


def test_an_answer_may_end_in_the_turn_in_which_another_begins(
    fork: Callable[..., Runner], tiny: Path
) -> None:
    """They begin one after the other, so some answer ends whenever a new prompt is read."""
    runner = fork(SKULK_FAULTS="delay@*:0.1")
    runner.configure(tiny)
    runner.become_ready()
    # Only a runner that knows what its steps cost reads prompts one after the other.
    runner.chat("so that it knows")
    text = "and so on " * 9
    early = [runner.ask(f"{n} {text}", NO_END, max_output_tokens=10) for n in range(6)]
    runner.until(Output, lambda m: m.task_id == early[-1])
    late = [runner.ask(f"{n} {text}", NO_END, max_output_tokens=3) for n in range(6, 8)]
    answers = [runner.answer(task) for task in (*early, *late)]
    assert [answer.status.error_message for answer in answers] == [None] * 8
    assert [answer.usage.completion_tokens for answer in answers] == [10] * 6 + [3] * 2


def runner_has_ended(runner: Runner, task_id: str) -> bool:
    return any(
        getattr(m, "task_id", None) == task_id and getattr(m, "status", None) == "Complete"
        for m in runner.heard
    )


def test_a_seed_gives_the_same_answer_whoever_else_is_there(runner: Runner) -> None:
    def seeded() -> Any:
        return runner.ask("dice", seed=7, temperature=1.0, max_output_tokens=40)

    alone = runner.answer(seeded()).text()
    companions = [runner.ask("noise", temperature=1.5, max_output_tokens=60) for _ in range(3)]
    together = runner.answer(seeded()).text()
    for companion in companions:
        runner.answer(companion)
    assert alone == together


def test_without_a_seed_answers_differ(runner: Runner) -> None:
    answers = {runner.chat("dice", temperature=1.0, max_output_tokens=40).text() for _ in range(3)}
    assert len(answers) == 3


def test_other_seeds_give_other_answers(runner: Runner) -> None:
    answers = {runner.chat("dice", seed=seed, temperature=1.0).text() for seed in (1, 2)}
    assert len(answers) == 2


def test_a_stop_string_ends_the_answer_before_it_and_stops_decoding(runner: Runner) -> None:
    whole = runner.chat("a stop", extra=NO_END, max_output_tokens=200)
    stop = whole.text()[60:66]
    cut = whole.text().index(stop)
    answer = runner.chat("a stop", extra=NO_END, max_output_tokens=200, stop=["never", stop])
    assert answer.text() == whole.text()[:cut]
    assert answer.finish_reason() == "stop"
    assert answer.usage.completion_tokens < 200
    assert all(stop not in item.text for item in answer.items())


def test_max_tokens_ends_with_length(runner: Runner) -> None:
    answer = runner.chat("go on", extra=NO_END, max_output_tokens=7)
    assert answer.finish_reason() == "length"
    assert answer.usage.completion_tokens == 7
    assert sum(item.tokens for item in answer.items()) == 7


def test_the_end_token_ends_the_answer_and_is_no_text(runner: Runner) -> None:
    answer = runner.chat("bye", extra=GenerationOptions(logit_bias={"2": 1000.0}))
    assert (answer.text(), answer.finish_reason()) == ("", "stop")
    assert answer.usage.completion_tokens == 1


def test_several_choices_share_the_prompt_and_differ(runner: Runner) -> None:
    extra = GenerationOptions(n=3)
    answer = runner.chat("pick", extra=extra, seed=3, temperature=1.2, max_output_tokens=20)
    texts = {answer.text(choice) for choice in range(3)}
    assert len(texts) == 3
    assert all(answer.finish_reason(choice) for choice in range(3))
    single = runner.chat("pick", temperature=1.2, max_output_tokens=1)
    assert answer.usage.prompt_tokens == single.usage.prompt_tokens


def test_greedy_choices_are_equal_to_the_single_answer(runner: Runner) -> None:
    single = runner.chat("same", max_output_tokens=20).text()
    answer = runner.chat("same", extra=GenerationOptions(n=2), max_output_tokens=20)
    assert [answer.text(0), answer.text(1)] == [single, single]


def test_logprobs_name_the_chosen_token_and_its_rivals(runner: Runner) -> None:
    answer = runner.chat("odds", extra=NO_END, max_output_tokens=10, logprobs=True, top_logprobs=3)
    chosen = [entry for item in answer.items() for entry in item.logprobs or []]
    assert len(chosen) == 10
    for entry in chosen:
        assert len(entry.top_logprobs) == 3
        # Greedy: what was chosen is the best of them.
        assert entry.top_logprobs[0].token == entry.token
        assert entry.logprob == entry.top_logprobs[0].logprob <= 0
    # The bytes of the tokens are the answer, also where a character is spread over tokens.
    assert (
        bytes(b for entry in chosen for b in entry.bytes).decode(errors="replace") == answer.text()
    )


@pytest.mark.parametrize("penalty", ["frequency_penalty", "presence_penalty"])
def test_a_heavy_penalty_allows_no_token_twice(runner: Runner, penalty: str) -> None:
    extra = GenerationOptions.model_validate({penalty: 1000.0, "logit_bias": {"2": -1000.0}})
    answer = runner.chat(
        "again and again", extra=extra, max_output_tokens=60, logprobs=True, top_logprobs=1
    )
    tokens = [tuple(entry.bytes) for item in answer.items() for entry in item.logprobs or []]
    assert len(tokens) == 60
    assert len(set(tokens)) == 60


def test_a_repetition_penalty_changes_the_answer(runner: Runner) -> None:
    plain = runner.chat("again", extra=NO_END, max_output_tokens=60).text()
    assert runner.chat(
        "again", extra=NO_END, max_output_tokens=60, repetition_penalty=1.8
    ).text() not in ("", plain)


def test_a_bias_decides_the_token(runner: Runner) -> None:
    extra = GenerationOptions(logit_bias={"40": 1000.0})
    answer = runner.chat("b", extra=extra, max_output_tokens=5)
    assert len(set(answer.text())) == 1
    assert len(answer.text()) == 5


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"extra": GenerationOptions(logit_bias={"9999": 1.0})}, "no token 9999"),
        ({"extra": GenerationOptions(response_format={"type": "yaml"})}, "response_format"),
        (
            {
                "extra": GenerationOptions(
                    response_format={
                        "type": "json_schema",
                        "json_schema": {"schema": {"type": "x"}},
                    }
                )
            },
            "cannot be followed",
        ),
        ({"extra": GenerationOptions(tool_choice="required")}, "no tools"),
        ({"messages": []}, "no messages"),
        ({"extra": GenerationOptions(prompt="")}, "empty"),
        ({"images": ["x"]}, "no images"),
        ({"max_output_tokens": 0}, "positive"),
        ({"repetition_penalty": -1.0}, "cannot be understood"),
        ({"extra": GenerationOptions(n=1000)}, "limit is 128"),
        ({"messages": [{"role": "assistant", "tool_calls": ["odd"]}]}, "cannot be understood"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_and_hurts_nobody(
    runner: Runner, params: dict[str, Any], reason: str
) -> None:
    answer = runner.chat("bad", **params)
    assert answer.status.status == "Failed"
    assert answer.status.error_type == "invalid_request_error"
    assert reason in (answer.status.error_message or "")
    assert runner.chat("good", max_output_tokens=3).status.status == "Complete"


def test_a_prompt_over_the_limit_is_refused_before_any_prefill(runner: Runner) -> None:
    task = runner.ask("y" * 100_000)
    answer = runner.answer(task)
    assert answer.status.error_type == "invalid_request_error"
    message = answer.status.error_message or ""
    assert message.startswith("context_length_exceeded:")
    assert "2048" in message
    phases = {phase.entry.phase for phase in runner.entries(task)}
    assert "prompt_build" in phases
    assert "prefill_stream" not in phases
    assert not [m for m in runner.heard if isinstance(m, PrefillProgress) and m.task_id == task]


SCHEMA = {
    "type": "object",
    "properties": {
        "ok": {"type": "boolean"},
        "colour": {"enum": ["röd", "😀 grün"]},
        "size": {"type": "integer", "minimum": 1, "maximum": 99},
    },
    "required": ["ok", "colour", "size"],
    "additionalProperties": False,
}


def test_a_schema_is_followed_and_no_character_is_torn(runner: Runner) -> None:
    extra = GenerationOptions(
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    )
    for seed in range(4):
        answer = runner.chat("json", extra=extra, seed=seed, temperature=1.0, max_output_tokens=120)
        value = json.loads(answer.text())
        assert set(value) == {"ok", "colour", "size"}
        assert value["colour"] in ("röd", "😀 grün")
        assert 1 <= value["size"] <= 99
        assert answer.finish_reason() == "stop"
        assert all("\ufffd" not in item.text for item in answer.items())


def test_json_mode_answers_with_an_object_and_leaves_others_alone(
    runner: Runner, reference: Reference
) -> None:
    expected = reference.greedy(user("free text"), 30)["text"]
    extra = GenerationOptions(response_format={"type": "json_object"})
    constrained = runner.ask("json", extra, max_output_tokens=30)
    free = runner.ask("free text", max_output_tokens=30)
    assert runner.answer(constrained).text().startswith("{")
    assert runner.answer(free).text() == expected


def a_tool(name: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"weather", "time"}),
        ({"type": "function", "function": {"name": "time"}}, {"time"}),
    ],
    ids=["required", "named"],
)
def test_a_forced_tool_call_arrives_whole(
    runner: Runner, choice: str | dict[str, Any], names: set[str]
) -> None:
    extra = GenerationOptions(tool_choice=choice)
    tools = [a_tool("weather"), a_tool("time")]
    answer = runner.chat("call", extra=extra, tools=tools, max_output_tokens=150)
    assert answer.finish_reason() == "tool_calls"
    assert answer.text() == ""
    (calls,) = [item.tool_calls for item in answer.items() if item.tool_calls]
    (call,) = calls
    assert call.name in names
    assert json.loads(call.arguments)["city"] in ("Oslo", "Rome")


def test_raw_text_is_continued_without_a_template(runner: Runner) -> None:
    answer = runner.chat(extra=GenerationOptions(prompt="Once upon"), max_output_tokens=5)
    assert answer.usage.prompt_tokens == len("Once upon")
    assert answer.usage.completion_tokens == 5


def test_usage_and_speed_come_with_the_last_output(runner: Runner) -> None:
    answer = runner.chat("speed", extra=NO_END, max_output_tokens=12)
    assert [output.usage is not None for output in answer.outputs][-1]
    assert sum(output.usage is not None for output in answer.outputs) == 1
    assert answer.stats.prompt_tps > 0
    assert answer.stats.generation_tps > 0
    assert answer.stats.peak_memory_usage.in_bytes > 1_000_000
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12

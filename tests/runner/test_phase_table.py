"""Which of the 22 phases a real group records, and on which rank: nothing may fall silent unseen.

One run of two ranks does everything a group can be asked: it is started, answers, calls a tool,
refuses a picture, is cancelled, and stops.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from skulkd.runner.exits import ExitCode
from skulkd.runner.generation.entries import StepEntries
from skulkd.runner.group.group import RankGroup
from skulkd.runner.protocol import GenerationOptions, Output
from skulkd.wire.diagnostics import RunnerPhase
from tests.runner.rank_group import MakeGroup, RankGroupOfRunners, marks
from tests.runner.test_phases import Sink, a_recorder

NO_END = GenerationOptions(logit_bias={"2": -100.0})
BOTH, LEADER, NOBODY = {0, 1}, {0}, set[int]()
TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "look", "parameters": {"type": "object"}},
}

# phase: ranks of a pipeline, ranks of a group that shares layers.
TABLE: dict[str, tuple[set[int], set[int]]] = {
    "created": (BOTH, BOTH),
    "connect_group": (BOTH, BOTH),
    "load_model": (BOTH, BOTH),
    "warmup": (BOTH, BOTH),
    "idle": (BOTH, BOTH),
    "task_submission": (BOTH, BOTH),
    "task_agreement": (BOTH, BOTH),
    "prompt_build": (BOTH, BOTH),
    # Pictures are refused by rank 0; the others never hear of such a request.
    "vision_preprocess": (LEADER, LEADER),
    "kv_cache_lookup": (BOTH, BOTH),
    "prefill_barrier": (BOTH, BOTH),
    "prefill_pipeline": (BOTH, NOBODY),
    "prefill_stream": (NOBODY, BOTH),
    "decode_barrier": (BOTH, BOTH),
    "decode_wait_first_token": (BOTH, BOTH),
    "decode_stream": (BOTH, BOTH),
    # Only rank 0 knows the text.
    "parser": (LEADER, LEADER),
    "cancel_requested": (BOTH, BOTH),
    "cancel_observed": (BOTH, BOTH),
    "completion": (BOTH, BOTH),
    # Nothing fails in this run; `test_faults.py` sees what a failure leaves.
    "error": (NOBODY, NOBODY),
    "shutdown_cleanup": (BOTH, BOTH),
}

# What a forward through a pipeline waits in: ranks that record it in prefill, and in decode.
FORWARD: dict[str, tuple[set[int], set[int]]] = {
    "pipeline_first_recv_like": ({1, 2}, {1, 2}),
    "pipeline_first_eval_recv": ({1, 2}, {1, 2}),
    "pipeline_last_send": ({0, 1}, {0, 1}),
    "pipeline_last_eval_output": ({0, 1, 2}, {0, 1, 2}),
    "pipeline_last_eval_all_gather": (set(), {0, 2}),
}


def test_the_table_has_every_phase() -> None:
    assert set(TABLE) == set(get_args(RunnerPhase))


def live_through_everything(pair: RankGroupOfRunners) -> None:
    pair.chat("hello", extra=NO_END, max_output_tokens=12)
    pair.chat("call it", extra=NO_END, max_output_tokens=4, tools=[TOOL])
    pair.chat("see this", images=["aGVsbG8="])
    task_id = pair.ask("go on", extra=NO_END, max_output_tokens=1000)
    pair.leader.until(Output)
    pair.cancel(task_id)
    assert pair.answer(task_id).status.status == "Cancelled"


@pytest.mark.parametrize("tensor", [False, True], ids=["pipeline", "tensor"])
def test_each_phase_is_recorded_where_it_happens(
    group: MakeGroup, tiny: Path, tensor: bool
) -> None:
    pair = group(2, tiny, tensor=tensor)
    live_through_everything(pair)
    assert pair.stop() == [ExitCode.CLEAN] * 2
    seen = {
        phase: {
            rank
            for rank, runner in enumerate(pair.ranks)
            if any(mark[0] == phase for mark in marks(runner))
        }
        for phase in TABLE
    }
    assert seen == {phase: ranks[tensor] for phase, ranks in TABLE.items()}


def test_the_first_forwards_of_a_request_are_written_in_detail(
    group: MakeGroup, tiny: Path
) -> None:
    three = group(3, tiny)
    three.chat("hello", extra=NO_END, max_output_tokens=40)
    for rank, runner in enumerate(three.ranks):
        found = set(marks(runner))
        for detail, (prefill, decode) in FORWARD.items():
            for phase, ranks in (("prefill_pipeline", prefill), ("decode_stream", decode)):
                pair = {(phase, event, detail) for event in ("enter", "exit")}
                expected = pair if rank in ranks else set()
                assert found & pair == expected, (rank, phase, detail)


def test_only_the_first_steps_after_a_rest_are_written_in_detail() -> None:
    """More would push older entries out: one piece of the prompt, then two steps for a token."""
    recorder = a_recorder(Sink())
    steps = StepEntries(recorder, RankGroup())
    detailed = []
    for number in range(1, 9):
        if number == 1:
            steps.woken()
        steps.begin_step(number)
        detailed.append(recorder.details)
        if number in (3, 6):
            steps.prompt_read()
    assert detailed == [True, False, False, True, True, False, False, False]

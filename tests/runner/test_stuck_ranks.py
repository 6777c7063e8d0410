"""Every fault of the test hook, in real ranks: what the culprit shows, and what the others do.

The pulse of each rank tells who waits in what; the verdict rests on that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from skulkd.runner.faults import FAULTS
from skulkd.runner.protocol import GenerationOptions, Output, Pulse
from skulkd.wire.ids import TaskId
from skulkd.wire.tasks import LoadModel, StartWarmup
from tests.runner.rank_group import MakeGroup, RankGroupOfRunners, marks
from tests.runner.runner_process import INSTANCE, Runner

IdleRanks = Callable[..., RankGroupOfRunners]
NO_END = GenerationOptions(logit_bias={"2": -100.0})
BARRIER: set[str | None] = {"mx_barrier"}
FORWARD: set[str | None] = {
    "pipeline_step",
    "pipeline_first_eval_recv",
    "pipeline_last_eval_output",
    "pipeline_last_eval_all_gather",
    "order_wait",
}
OWN_WORK: set[str | None] = {None}

# fault on rank 1: where that rank is, and where ranks 0 and 2 are.
IN_A_REQUEST = {
    "stall_before_barrier": (OWN_WORK, BARRIER),
    "stall_in_barrier": (OWN_WORK, BARRIER),
    "skip_collective": (FORWARD, BARRIER),
    "stall_step": (OWN_WORK, FORWARD),
    "drop_task": ({"task_wait"}, BARRIER),
}
ELSEWHERE = {"wedge_warmup", "stall_connect", "delay", "ignore_cancel"}


def test_every_fault_is_tried_here() -> None:
    assert IN_A_REQUEST.keys() | ELSEWHERE == FAULTS.keys()


def stands_in(runner: Runner, sites: set[str | None]) -> Pulse:
    """The second of two equal pulses in one of these places: a rank that stands still.

    The first one may catch it on its way, so every pulse is compared with the one before.
    """
    before: Pulse | None = None

    def stands(pulse: Pulse) -> bool:
        nonlocal before
        last, before = before, pulse
        if not pulse.busy or pulse.site not in sites or last is None:
            return False
        return (last.site, last.step, last.moves) == (pulse.site, pulse.step, pulse.moves)

    return runner.until(Pulse, stands)


@pytest.mark.parametrize("fault", IN_A_REQUEST)
def test_a_request_that_is_stuck_shows_who_is_missing(
    group: MakeGroup, tiny: Path, fault: str
) -> None:
    culprit, others = IN_A_REQUEST[fault]
    three = group(3, tiny, faults=f"{fault}@1")
    three.ask("stuck", extra=NO_END, max_output_tokens=100)
    assert stands_in(three.ranks[1], culprit).site in culprit
    assert stands_in(three.ranks[0], others).site in others
    assert stands_in(three.ranks[2], others).site in others


def test_ranks_that_share_layers_show_who_is_missing(group: MakeGroup, tiny: Path) -> None:
    pair = group(2, tiny, tensor=True, faults="stall_step@1")
    pair.ask("stuck", extra=NO_END, max_output_tokens=100)
    behind = stands_in(pair.ranks[1], OWN_WORK)
    ahead = stands_in(pair.ranks[0], {"model_step", "model_eval"})
    assert behind.step == 3
    assert ahead.step >= behind.step


def test_a_warm_up_that_is_stuck_shows_who_is_missing(idle_ranks: IdleRanks, tiny: Path) -> None:
    three = idle_ranks(3, "wedge_warmup@1")
    three.configure(tiny)
    three.connect()
    for runner in three.ranks:
        runner.run(LoadModel(task_id=TaskId("load"), instance_id=INSTANCE))
        runner.run(StartWarmup(task_id=TaskId("warmup"), instance_id=INSTANCE))
    for runner in three.ranks:
        runner.until(Pulse, lambda m: m.busy)
    stands_in(three.ranks[0], FORWARD)
    stands_in(three.ranks[2], FORWARD)
    stuck = ("warmup", "enter", "warmup_mlx_generate")
    stands_in(three.ranks[1], OWN_WORK)
    assert marks(three.ranks[1])[-1] == stuck


def test_a_rank_that_does_not_join_shows_that_it_is_not_in_the_handshake(
    idle_ranks: IdleRanks, tiny: Path
) -> None:
    pair = idle_ranks(2, "stall_connect@1")
    pair.configure(tiny)
    pair.connect()
    stands_in(pair.ranks[1], OWN_WORK)
    stands_in(pair.ranks[0], {"group_handshake"})


def test_a_slow_rank_moves_and_answers(group: MakeGroup, tiny: Path) -> None:
    pair = group(2, tiny, faults="delay@1:0.3")
    task_id = pair.ask("slow", extra=NO_END, max_output_tokens=8)
    assert pair.answer(task_id).status.status == "Complete"
    for runner in pair.ranks:
        # The last pulse says that the work is over: an idle runner is not a frozen one.
        last = runner.until(Pulse, lambda m: not m.busy)
        assert last.step >= 8
        assert last.moves > last.step


def test_a_cancel_that_is_ignored_changes_nothing(group: MakeGroup, tiny: Path) -> None:
    pair = group(2, tiny, faults="ignore_cancel@0")
    task_id = pair.ask("deaf", extra=NO_END, max_output_tokens=60)
    pair.leader.until(Output)
    pair.cancel(task_id)
    answer = pair.answer(task_id)
    assert (answer.status.status, answer.usage.completion_tokens) == ("Complete", 60)

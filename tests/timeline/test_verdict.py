"""One verdict for every view: the rule, the culprit, what ends it when, and what to type."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from skulkctl.verdict import Limits, State
from skulkctl.verdict.findings import Culprit
from tests.timeline.builders import (
    NODES,
    TASK,
    admitted,
    assess,
    at,
    enter,
    limits,
    pulse,
    rank,
    step,
    timeline,
    unstarted,
)
from tests.timeline.situations import RECV, Situation, d1, decoding, situations

RUNBOOK = Path(__file__).parents[2] / "docs" / "runbook.md"
CATALOGUE = [f"D{number}" for number in range(1, 27)]
"""The signatures of the runbook; each needs a timeline that shows it."""


WAITS = ["FILES", "MEMORY", "START", "DRAIN"]


@pytest.mark.parametrize("rule", [*CATALOGUE, *WAITS, "D0", "FROZEN", "EVAL", "LOAD"])
def test_every_signature_has_a_timeline_that_shows_it(rule: str) -> None:
    shown = [one for one in situations() if one.rule == rule]
    assert shown, f"no timeline shows {rule}"
    assert all(assess(one.timeline, names=NODES).worst.rule == rule for one in shown)


@pytest.mark.parametrize("rule", [*CATALOGUE, *WAITS, "D0", "FROZEN"])
def test_the_runbook_says_what_to_do_about_every_signature(rule: str) -> None:
    rows = [row for row in RUNBOOK.read_text().splitlines() if row.startswith("| ")]
    named = [row for row in rows if rule in re.split(r"[ ,|]+", row.split("|")[1])]
    assert len(named) == 1, rule


@pytest.mark.parametrize("situation", situations(), ids=lambda one: f"{one.rule}-{one.state}")
def test_each_signature_is_recognised(situation: Situation) -> None:
    worst = assess(situation.timeline, names=NODES).worst
    assert (worst.rule, str(worst.state)) == (situation.rule, situation.state)
    found = None if worst.culprit is None else worst.culprit.rank
    assert found == situation.culprit
    assert worst.sentences
    assert worst.next or worst.state is State.OK


def test_the_textbook_hang_names_everything() -> None:
    worst = assess(d1(), names=NODES).worst
    assert worst.still_s == pytest.approx(41.0)
    assert str(worst.culprit) == "rank 1 on kite2"
    assert [victim.rank for victim in worst.victims] == [0, 2, 3]
    assert worst.sentences == (
        "Rank 1 on kite2 is the only rank doing its own work: "
        "inside pipeline_last_eval_output since 14:06:51Z.",
        "Ranks 2 and 3 wait for data from below, rank 0 has handed the data over.",
    )
    assert [str(one) for one in worst.deadlines] == [
        "the 60 s eval limit ends ranks 2 and 3 in 13 s"
    ]
    assert worst.next == ("skulkctl capture 7f3c2b1a/1", f"skulkctl cancel {TASK}")
    assert worst.evidence[1] == (
        "rank 1 on kite2: inside pipeline_last_eval_output (prefill_pipeline) "
        "since 14:06:51Z, 41 s; RunnerRunning"
    )


@pytest.mark.parametrize("situation", situations(), ids=lambda one: f"{one.rule}-{one.state}")
def test_no_hang_while_any_rank_moves(situation: Situation) -> None:
    before = copy.deepcopy(situation.timeline)
    if before["runners"][-1]["lastProgressAt"] is None:
        before["runners"][0]["lastProgressAt"] = at(999)
    before["runners"][-1]["lastProgressAt"] = at(999)
    assert assess(situation.timeline, before, names=NODES).worst.state is not State.HANG


def test_a_step_without_an_entry_is_a_move() -> None:
    """Slow steps write one entry in 25; the pulse counts every one."""
    hung = timeline(*(rank(number, decoding(41, 2), live=pulse(40)) for number in range(2)))
    assert assess(hung, hung).worst.state is State.HANG
    later = copy.deepcopy(hung)
    later["runners"][1]["live"] |= {"step": 4}
    assert assess(later, hung).worst.state is State.WAITING
    later["runners"][1]["live"] |= {"stillSeconds": 1.0}
    assert assess(later).worst.state is State.OK


def test_a_task_that_is_not_taken_is_evidence_of_other_hangs_too() -> None:
    hung = d1()
    hung["runners"][1] |= {"pendingTaskIds": ["88d1aa22"], "pendingSeconds": 12.0}
    worst = assess(hung, names=NODES).worst
    assert worst.rule == "D1"
    assert "rank 1 on kite2: 1 task sent and not acknowledged for 12 s (D21)" in worst.evidence


def test_an_idle_runner_without_a_pulse_is_not_frozen() -> None:
    idle = [step(9000, "idle", "runner_ready")]
    quiet = pulse(9000, busy=False, silent_s=9000)
    ranks = [rank(number, idle, status="RunnerReady", task=None, live=quiet) for number in range(2)]
    assert assess(timeline(*ranks)).worst.state is State.OK


@pytest.mark.parametrize(
    ("words", "culprit"),
    [
        # rank 1 was stopped and killed, the others were killed with it
        ({0: "followed", 1: "culprit", 2: "followed"}, 1),
        # rank 2's node is gone
        ({0: "followed", 2: "lost"}, 2),
        # everybody ran into a deadline, nobody knows why
        ({0: "waited", 1: "waited", 2: "waited"}, None),
    ],
    ids=["killed", "lost", "waited"],
)
def test_of_ranks_that_ended_together_the_first_is_named(
    words: dict[int, str], culprit: int | None
) -> None:
    ranks = []
    for number in range(3):
        steps = [step(30, "idle", "runner_ready")]
        if number in words:
            end = step(60, "error", "runner_ended", "it ended", blame=words[number])
            steps.insert(0, end)
        ranks.append(rank(number, steps, status="RunnerReady", task=None))
    worst = assess(timeline(*ranks), names=NODES).worst
    assert worst.state is State.RECOVERED
    assert (None if worst.culprit is None else worst.culprit.rank) == culprit


def test_a_rank_that_lost_another_names_it() -> None:
    words = step(60, "decode_stream", "group_lost", "rank 2 at 10.0.0.3 is gone", lost_rank=2)
    ranks = [
        rank(number, [*([words] if number == 0 else []), step(30, "idle", "runner_ready")],
             status="RunnerReady", task=None)
        for number in range(3)
    ]  # fmt: skip
    worst = assess(timeline(*ranks), names=NODES).worst
    assert (worst.state, worst.culprit and worst.culprit.rank) == (State.RECOVERED, 2)


def test_after_a_cancel_that_nobody_heard_the_next_step_is_another() -> None:
    hung = d1()
    assert assess(hung).worst.next[1] == f"skulkctl cancel {TASK}"
    mark = {**hung["timeline"][-1], "at": at(5), "event": "supervisor_cancel_requested"}
    hung["timeline"].append(mark)
    assert assess(hung).worst.next[1] == "skulkctl delete 7f3c2b1a"


def test_an_offset_within_the_round_trip_is_none() -> None:
    """Otherwise every time on the screen would change with every answer."""
    hung = d1()
    hung["clockSkews"] = [{"nodeId": "node-1", "offsetSeconds": 0.004, "roundTripSeconds": 0.01}]
    assert assess(hung).worst.still_s == pytest.approx(41.0, abs=1e-6)


def test_a_lost_member_is_named_although_its_ranks_run_elsewhere() -> None:
    moved = timeline(rank(0, decoding(3, 5)))
    lost = {"name": "kite4", "nodeId": "node-4", "since": "2026-03-04T12:00:00Z"}
    moved["lostNodes"] = [{**lost, "sinceSeconds": 305.0}]
    worst, other = assess(moved, names=NODES).findings
    assert (worst.state, worst.rule, worst.culprit) == (
        State.NODE_GONE, "D24", Culprit("node-4", "kite4"),
    )  # fmt: skip
    assert worst.sentences == ("kite4 left without notice 5m5s ago.",)
    assert worst.next == ("ping kite4", "skulkctl nodes forget kite4", "skulkctl nodes")
    assert other.state is State.OK


def test_a_lost_member_that_a_rank_is_missing_on_is_named_once() -> None:
    alone = timeline(rank(0, decoding(3, 5)), size=2, silent={"node-1": "gone"})
    lost = {"name": "kite2", "nodeId": "node-1", "since": "2026-03-04T12:00:00Z"}
    alone["lostNodes"] = [{**lost, "sinceSeconds": 3.0}]
    assert len(assess(alone, names=NODES).findings) == 1


def test_a_node_without_a_known_name_is_not_called_by_its_id() -> None:
    alone = timeline(rank(0, decoding(3, 5)), size=2, silent={"node-9-without-a-name": "gone"})
    assert assess(alone, names=NODES).worst.next == ("skulkctl nodes",)


def test_a_new_entry_on_one_rank_is_enough_to_be_well() -> None:
    hung = d1()
    hung["runners"][3]["lastProgressAt"] = at(1.0)
    assert assess(hung).worst.state is State.OK


def test_the_same_data_twice_is_still_a_hang() -> None:
    assert assess(d1(), d1()).worst.state is State.HANG


def test_before_the_limit_it_is_only_waiting() -> None:
    hung = d1()
    assert assess(hung, limits=Limits(hang_s=60)).worst.state is State.WAITING
    assert assess(hung, limits=Limits(waiting_s=50)).worst.state is State.OK


def test_a_clock_that_is_ahead_does_not_hide_a_hang() -> None:
    """The owner's clock runs 100 s fast: its last entry seems to lie in the future."""
    hung = d1()
    moved = hung["runners"][1]
    moved["lastProgressAt"] = at(41 - 100)
    assert assess(hung).worst.state is State.OK
    hung["clockSkews"] = [{"nodeId": "node-1", "offsetSeconds": 100.0, "roundTripSeconds": 0.01}]
    worst = assess(hung).worst
    assert (worst.state, worst.rule) == (State.HANG, "D1")


def test_the_daemons_own_limits_count() -> None:
    hung = timeline(*_d7_ranks(), limits=limits(agreementSeconds=75.0))
    assert [str(one) for one in assess(hung).worst.deadlines] == [
        "the 75 s agreement limit ends ranks 0 and 1 in 12 s"
    ]
    assert assess(timeline(*_d7_ranks())).worst.deadlines == ()


def _d7_ranks() -> list[dict[str, Any]]:
    asking = [
        step(64, "task_submission", "submit_text_generation"),
        enter(63, "task_agreement", "mx_all_gather_tasks", candidate_count=1),
    ]
    idle = rank(2, [step(540, "idle", "runner_ready")], status="RunnerReady", task=None)
    return [rank(0, asking), rank(1, asking), idle]


def test_the_first_differing_attribute_is_shown() -> None:
    worst = assess(timeline(*_d7_ranks())).worst
    assert worst.difference == ("mx_all_gather_tasks.candidate_count", ("1", "1", "none"))


def test_a_difference_that_began_earlier_is_found() -> None:
    short = [*admitted(50)[:-1], step(49, "prompt_build", "prompt_tokenized", prompt_tokens=511)]
    worst = assess(
        timeline(
            rank(0, [*admitted(50), enter(40, "decode_stream", RECV)]),
            rank(1, [*short, enter(40, "decode_stream", RECV)]),
        )
    ).worst
    assert worst.difference == ("prompt_tokenized.prompt_tokens", ("512", "511"))


def test_a_slow_decode_is_no_hang() -> None:
    """An entry every 20 s is its usual pace; 45 s of silence is not yet far from it."""
    slow = [
        step(85, "decode_stream", "decode_token_progress", completion_tokens=25),
        step(65, "decode_stream", "decode_token_progress", completion_tokens=50),
        step(45, "decode_stream", "decode_token_progress", completion_tokens=75),
    ]
    both = timeline(rank(0, slow), rank(1, slow))
    assert assess(both).worst.state is State.WAITING


def test_ready_runners_are_well_however_long_they_rest() -> None:
    idle = [step(9000, "idle", "runner_ready")]
    ranks = (rank(number, idle, status="RunnerReady", task=None) for number in range(3))
    worst = assess(timeline(*ranks)).worst
    assert (worst.state, worst.sentences) == (State.OK, ("Nothing is stuck.",))


def test_an_engine_that_records_nothing_is_not_accused() -> None:
    quiet = rank(0, [step(500, "created", "process_started")], status="RunnerRunning", task=None)
    assert assess(timeline(quiet)).worst.state is State.OK


def test_old_data_is_stale_whatever_it_shows() -> None:
    worst = assess(d1(), age_s=31.0).worst
    assert (worst.state, worst.rule) == (State.STALE, "AGE")


def test_a_cancel_that_was_not_seen_is_evidence_and_hides_nothing() -> None:
    hung = d1()
    mark = {
        **hung["timeline"][-1],
        "at": at(5),
        "event": "supervisor_cancel_requested",
        "phase": "cancel_requested",
        "detail": TASK,
        "runnerId": hung["runners"][1]["runnerId"],
    }
    hung["timeline"].append(mark)
    worst = assess(hung, names=NODES).worst
    assert (worst.rule, worst.culprit and worst.culprit.rank) == ("D1", 1)
    assert any("asked to cancel" in line and "rank 1" in line for line in worst.evidence)


def test_a_node_that_vanished_is_told_from_one_whose_model_was_deleted() -> None:
    both = timeline(rank(0, decoding(3, 5)), rank(1, decoding(3, 5)))
    one_left = timeline(rank(0, decoding(3, 5)), size=2)
    vanished = assess(one_left, both, names=NODES)
    assert [(str(one.state), one.rule) for one in vanished.findings] == [
        ("NODE GONE", "D24"),
        ("RANK MISSING", "D22"),
    ]
    assert vanished.findings[0].culprit is not None
    assert vanished.findings[0].culprit.node == "kite2"
    deleted = assess(timeline(), both, names=NODES)
    assert deleted.worst.state is State.OK


def test_a_young_placement_may_still_lack_ranks() -> None:
    first = rank(
        0, [step(2, "created", "process_started")], status="RunnerIdle", task=None, in_phase_s=2.0
    )
    assert assess(timeline(first, size=2)).worst.state is State.WAITING


def test_a_silent_node_without_a_rank_is_told_too() -> None:
    well = timeline(
        rank(0, [step(40, "idle", "runner_ready")], status="RunnerReady", task=None),
        silent={"node-5": "no answer in 2 s"},
    )
    worst = assess(well, names=NODES).worst
    assert worst.sentences == ("kite6 does not answer: no answer in 2 s.",)


def test_the_most_urgent_placement_speaks_first() -> None:
    hung = d1()
    fine = timeline(
        rank(0, [step(1, "idle", "runner_ready")], status="RunnerReady", task=None, instance="aa11")
    )
    both = {**hung, "runners": fine["runners"] + hung["runners"]}
    findings = assess(both).findings
    assert [str(one.state) for one in findings] == ["HANG", "OK"]
    assert findings[0].document()["culprit"] == {
        "rank": 1,
        "nodeId": "node-1",
        "node": "node-1",
        "runnerId": "runner-7f3c2b1a-1",
    }


def test_nothing_at_all_is_well() -> None:
    assert assess(timeline()).worst.state is State.OK


COPY = {"doneBytes": 3 << 30, "totalBytes": 6 << 30}


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        pytest.param({}, "waits for model files.", id="nothing-known"),
        pytest.param(
            {**COPY, "bytesPerSecond": 80 << 20, "secondsLeft": 38.4, "stillSeconds": 0.1},
            "waits for model files: 3.0GiB/6.0GiB, 80.0MiB/s, 38s left.",
            id="copying",
        ),
        pytest.param(
            {"doneBytes": 0, "totalBytes": 6 << 30, "detail": "the store is computing checksums"},
            "waits for model files: 0B/6.0GiB, the store is computing checksums.",
            id="before-the-first-byte",
        ),
        pytest.param(
            {**COPY, "bytesPerSecond": 0.0, "stillSeconds": 42.0},
            "waits for model files: 3.0GiB/6.0GiB, no bytes for 42s.",
            id="stands-still",
        ),
        pytest.param(
            {**COPY, "stillSeconds": 42.0, "detail": "the store at 127.0.0.1:9 does not answer"},
            "waits for model files: 3.0GiB/6.0GiB, no bytes for 42s, "
            "the store at 127.0.0.1:9 does not answer.",
            id="store-gone",
        ),
    ],
)
def test_a_wait_for_files_tells_bytes_rate_time_left_and_trouble(
    facts: dict[str, Any], told: str
) -> None:
    both = timeline(unstarted(0, "ranks", 90), unstarted(1, "files", 90, **facts))
    worst = assess(both, both, names=NODES).worst
    assert worst.state is State.WAITING
    assert worst.sentences == (f"Rank 1 on kite2 {told}", "Rank 0 waits for it.")
    document = worst.document()
    assert document["waitsFor"] == "files"
    waiting = document["waiting"]
    assert isinstance(waiting, list)
    assert [one["reason"] for one in waiting] == ["ranks", "files"]
    assert waiting[1]["doneBytes"] == facts.get("doneBytes")


def test_a_rank_that_failed_is_told_before_one_that_waits_for_files() -> None:
    failed = rank(0, [], status="RunnerFailed", alive=False, task=None)
    worst = assess(timeline(failed, unstarted(1, "files", 90))).worst
    assert worst.state is State.RANK_MISSING


def test_a_rank_that_failed_and_gets_its_files_again_waits() -> None:
    again = unstarted(0, "files", 4, detail="the store does not answer")
    again["runner"]["statusKind"] = "RunnerFailed"
    worst = assess(timeline(again), names=NODES).worst
    assert (worst.state, worst.rule) == (State.WAITING, "FILES")
    assert worst.sentences == ("Rank 0 on kite1 waits for model files: the store does not answer.",)


@pytest.mark.parametrize("status", ["RunnerReady", "RunnerRunning", "RunnerShuttingDown"])
@pytest.mark.parametrize(
    ("pending_s", "state"), [(2.0, State.OK), (6.0, State.WAITING), (31.0, State.HANG)]
)
def test_a_task_that_no_rank_takes_is_told_whatever_the_status_says(
    status: str, pending_s: float, state: State
) -> None:
    idle = [step(540, "idle", "runner_ready")]
    ranks = [
        rank(number, idle, status=status, task=None, pending_s=pending_s if number == 0 else None)
        for number in range(2)
    ]
    worst = assess(timeline(*ranks)).worst
    if status == "RunnerShuttingDown" and state is State.OK:
        assert worst.rule == "DRAIN"
        return
    assert worst.state is state
    assert worst.rule == (None if state is State.OK else "D21")


def test_a_task_that_is_not_taken_while_others_move_is_waiting_and_no_hang() -> None:
    both = timeline(rank(0, decoding(1, 5), pending_s=90.0), rank(1, decoding(1, 5)))
    worst = assess(both).worst
    assert (worst.state, worst.rule) == (State.WAITING, "D21")
    assert worst.sentences[1] == "The ranks work on other tasks."


def test_a_task_that_waits_for_an_unknown_time_is_no_hang() -> None:
    idle = rank(0, [step(540, "idle", "runner_ready")], status="RunnerReady", task=None)
    idle["runner"]["pendingTaskIds"] = [TASK]
    worst = assess(timeline(idle)).worst
    assert (worst.state, worst.rule) == (State.WAITING, "D21")
    assert worst.sentences[0] == f"Rank 0 has not taken task {TASK} yet."


def test_a_recovered_hang_is_a_note_that_says_how_long_it_is_shown() -> None:
    recovered = next(one for one in situations() if one.state == "RECOVERED")
    worst = assess(recovered.timeline, names=NODES).worst
    assert not worst.is_problem
    # It ended 90 s before 14:07:32.
    assert worst.sentences[-1] == "This is shown for 10 minutes, until 14:16:02Z."
    assert assess(recovered.timeline, limits=Limits(recovered_s=80)).worst.state is State.OK


OURS = {"limits": limits(progressSeconds=75.0)}


def test_our_daemons_end_every_request_that_stands_still() -> None:
    alone = rank(0, [enter(70, "vision_preprocess", "prepare_vision")])
    assert assess(timeline(alone)).worst.deadlines == (), "a stock node has no such limit"
    worst = assess(timeline(alone, **OURS)).worst
    assert [str(one) for one in worst.deadlines] == [
        "the 60 s eval limit should have ended rank 0 10 s ago"
    ]
    frozen = rank(0, decoding(41, 2), live=pulse(40, "pipeline_step", silent_s=40.0))
    worst = assess(timeline(frozen, **OURS)).worst
    assert [str(one) for one in worst.deadlines] == ["the 75 s progress limit ends rank 0 in 35 s"]

"""What the end of a runner is called, and whether it is worth another start."""

from __future__ import annotations

from typing import Any

import pytest

from skulkd.runner.exits import ExitCode
from skulkd.wire.ids import InstanceId
from skulkd.worker.endings import Blame, exited, given_up_text, killed, not_started


@pytest.mark.parametrize(
    ("exit_code", "facts", "reason", "restart"),
    [
        pytest.param(-9, {}, "Terminated (signal=9 (SIGKILL)) during warmup", True, id="killed"),
        pytest.param(-250, {}, "Terminated (signal=250 (unknown)) during warmup", True, id="odd"),
        pytest.param(
            0, {}, "Terminated (exitcode=0, without being asked) during warmup", True, id="clean"
        ),
        pytest.param(42, {}, "Terminated (exitcode=42) during warmup", True, id="unknown code"),
        pytest.param(
            86,
            {"message": "reboot"},
            "Terminated (gpu-wedge-deadline: warm-up did not end in time, exitcode=86)"
            " during warmup: reboot",
            False,
            id="wedge",
        ),
        pytest.param(
            1,
            {"reported": False, "last_line": "ImportError: mlx"},
            "Terminated (exitcode=1, before its first report) during warmup: ImportError: mlx",
            True,
            id="never got going",
        ),
        pytest.param(
            None,
            {},
            "Terminated (does not end, not even by SIGKILL) during warmup",
            False,
            id="unkillable",
        ),
    ],
)
def test_an_end_has_a_reason_and_a_verdict(
    exit_code: int | None, facts: dict[str, Any], reason: str, restart: bool
) -> None:
    ending = exited(exit_code, "warmup", **{"reported": True, **facts})
    assert (ending.reason, ending.restart_helps) == (reason, restart)


@pytest.mark.parametrize("code", [code for code in ExitCode if code != ExitCode.CLEAN])
def test_every_exit_code_of_the_runner_is_named_with_its_number(code: ExitCode) -> None:
    assert f"exitcode={int(code)}" in exited(code, "idle", reported=True).reason


@pytest.mark.parametrize(
    ("code", "blame"),
    [
        (-9, Blame.CULPRIT),
        (ExitCode.CRASHED, Blame.CULPRIT),
        (ExitCode.EVAL_WEDGE, Blame.WAITED),
        (ExitCode.CONNECT_DEADLINE, Blame.WAITED),
        (-14, Blame.WAITED),
        (-11, Blame.WAITED),
        (ExitCode.GROUP_LOST, Blame.FOLLOWED),
    ],
)
def test_the_rank_where_it_began_is_told_from_those_that_waited(code: int, blame: Blame) -> None:
    assert exited(code, "decode_stream", reported=True).blame is blame


def test_network_trouble_is_not_blamed_on_the_gpu() -> None:
    ending = exited(ExitCode.CONNECT_DEADLINE, "connect_group", reported=True)
    assert "gpu" not in ending.reason
    assert ending.restart_helps


def test_our_own_kill_is_named_as_such() -> None:
    ending = killed("no progress for 75 s", "decode_stream")
    assert ending.summary == "no progress for 75 s; killed by the supervisor, during decode_stream"
    assert ending.restart_helps


def test_a_start_that_never_was_has_no_phase() -> None:
    ending = not_started("no files", restart_helps=False)
    assert ending.reason == "Not started: no files"


def test_endless_words_are_cut() -> None:
    assert len(exited(70, "idle", reported=True, message="x" * 10**6).reason) < 3000


@pytest.mark.parametrize(
    ("reason", "begins"),
    [
        ("Terminated (signal=9): place again.", "Terminated (signal=9): place again. Not started"),
        ("Terminated (signal=9)", "Terminated (signal=9). Not started"),
        ("", "Not started"),
    ],
)
def test_what_is_given_up_is_said_in_sentences(reason: str, begins: str) -> None:
    told = given_up_text(reason, "it crashed too often", InstanceId("7f3c2a10-0b52"))
    tail = "it crashed too often; after fixing it, run: skulkctl restart --instance 7f3c2a10"
    assert told == f"{begins} again: {tail}"

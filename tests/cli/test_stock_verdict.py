"""The verdict on a stock node: its timeline alone would call a task that nobody takes OK."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.cli.builders import a_request, a_supervised_runner
from tests.cli.conftest import Cli
from tests.cli.stock import KITE1, StockNode, recorded
from tests.timeline.builders import INSTANCE, MODEL, TASK

TIMELINE = "/v1/diagnostics/cluster/timeline"


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


def a_timeline(status: str, progress_at: str) -> dict[str, Any]:
    """One idle runner, in the reference's shape."""
    runner = {
        "nodeId": KITE1, "runnerId": "r-1", "instanceId": INSTANCE, "modelId": MODEL,
        "deviceRank": 0, "worldSize": 1, "pid": 7, "processAlive": True, "statusKind": status,
        "phase": "idle", "phaseDetail": None, "secondsInPhase": 540.0,
        "lastProgressAt": progress_at, "activeTaskId": None, "activeCommandId": None,
        "lastMlxMemory": None,
    }  # fmt: skip
    return {
        "generatedAt": ago(0), "localNodeId": KITE1, "masterNodeId": KITE1,
        "runners": [runner], "timeline": [], "unreachableNodes": [],
    }  # fmt: skip


def with_waiting_task(stock: StockNode, sent_s: float) -> None:
    state = recorded("state")
    state["tasks"] = {TASK: a_request(TASK, "c", INSTANCE, MODEL)}
    stock.on("GET", "/state", state)
    stock.on("GET", "/v1/diagnostics/cluster", lambda _: _diagnostics(sent_s))


def _diagnostics(sent_s: float) -> object:
    found = recorded("diagnostics_cluster")
    record = a_supervised_runner("r-1", "idle")
    record |= {"pendingTaskIds": [TASK], "lastTaskSentAt": ago(sent_s)}
    found["nodes"][0]["diagnostics"]["supervisorRunners"] = [record]
    return found


@pytest.mark.parametrize("status", ["RunnerReady", "RunnerRunning"])
@pytest.mark.parametrize(("sent_s", "code", "word"), [(10, 0, "WAITING"), (65, 7, "HANG")])
def test_a_task_that_a_stopped_runner_does_not_take(
    stock: StockNode, cli: Cli, status: str, sent_s: float, code: int, word: str
) -> None:
    progress_at = ago(540)
    stock.on("GET", TIMELINE, lambda _: a_timeline(status, progress_at))
    done = cli("timeline", "--check")
    assert (done.code, done.out.split()[0]) == (0, "OK")
    with_waiting_task(stock, sent_s)
    done = cli("timeline", "--check")
    assert (done.code, *done.out.split()[:2]) == (code, word, "D21")
    ranks = [line for line in cli("doctor").out.splitlines() if " ranks " in line]
    assert len(ranks) == 1
    assert f"{word} D21" in ranks[0]

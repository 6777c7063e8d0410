"""W8 and W9: a phase far longer than usual, and ranks that disagree."""

from __future__ import annotations

from typing import Any

import pytest

from skulkd.observe.placement_view import with_disagreements
from skulkd.observe.warnings import disagreements, phase_warnings
from skulkd.wire.diagnostics import (
    InstancePlacementDiagnostics,
    NodeDiagnostics,
    NodeResourceDiagnostics,
    NodeRuntimeDiagnostics,
)
from tests.observe.records import a_record, an_entry, stamp


def prefilled(usual_s: float, now_s: float) -> Any:
    """Has prefilled once for `usual_s`, and is at it again since `now_s`."""
    entries = [
        an_entry(0, "prefill_stream", "enter", "node-a", 0),
        an_entry(usual_s / 2, "prefill_stream", "progress", "node-a", 0),
        an_entry(usual_s, "decode_stream", "first_token", "node-a", 0),
        an_entry(usual_s + 5, "prefill_stream", "enter", "node-a", 0),
    ]
    return a_record(
        "node-a", phase="prefill_stream", seconds_in_phase=now_s, flight_recorder=entries
    )


@pytest.mark.parametrize(
    ("usual_s", "now_s", "warned"),
    [(2.0, 29.0, False), (2.0, 31.0, True), (20.0, 59.0, False), (20.0, 61.0, True)],
)
def test_a_phase_far_longer_than_usual(usual_s: float, now_s: float, warned: bool) -> None:
    found = list(phase_warnings([prefilled(usual_s, now_s)]))
    assert bool(found) == warned
    if warned:
        said = f"runner runner-0 has been in prefill_stream for {now_s:.0f} s"
        assert found == [("inst-1", f"{said}, never longer than {usual_s:.0f} s before")]


def test_rest_and_death_are_not_long_phases() -> None:
    idle = a_record("node-a", seconds_in_phase=9000.0)
    dead = a_record("node-a", phase="warmup", seconds_in_phase=99.0, process_alive=False)
    assert list(phase_warnings([idle, dead])) == []


def test_ranks_that_disagree_are_told_only_when_they_stand_still() -> None:
    waits = a_record("node-b", rank=1, phase="task_agreement", seconds_in_phase=40.0)
    assert list(disagreements([a_record("node-a"), waits])) == []
    idle = a_record("node-a", seconds_in_phase=400.0)
    assert list(disagreements([idle, waits])) == [
        (
            "inst-1",
            "the ranks of instance inst-1 disagree for 40 s: "
            "rank 0 RunnerReady in idle, rank 1 RunnerReady in task_agreement",
        )
    ]
    same = a_record("node-b", rank=1, seconds_in_phase=400.0)
    assert list(disagreements([idle, same])) == []


def test_the_warning_stands_in_every_bundle_that_knows_the_placement() -> None:
    idle = a_record("node-a", seconds_in_phase=400.0)
    waits = a_record("node-b", rank=1, phase="task_agreement", seconds_in_phase=40.0)
    bundles = [a_bundle("node-a", idle), a_bundle("node-b", waits), a_bundle("node-c")]
    near, far, stranger = with_disagreements(bundles)
    assert "disagree" in near.placements[0].warnings[0]
    assert near.warnings == far.warnings == near.placements[0].warnings
    assert stranger.warnings == []


def a_bundle(node: str, *records: Any) -> NodeDiagnostics:
    runtime: dict[str, Any] = {
        "node_id": node, "hostname": node, "is_master": False, "cwd": "/", "config_path": "/x",
        "config_file_exists": False, "skulk_version": "0", "skulk_commit": "0",
        "python_unbuffered": False, "tracing_enabled": False,
        "structured_logging_configured": False,
    }  # fmt: skip
    placements = [
        InstancePlacementDiagnostics(
            instance_id=record.instance_id,
            model_id=record.model_id,
            master_is_placement_node=True,
            local_node_is_placement_node=True,
        )
        for record in records
    ]
    return NodeDiagnostics(
        generated_at=stamp(0),
        runtime=NodeRuntimeDiagnostics(**runtime),
        resources=NodeResourceDiagnostics(),
        supervisor_runners=list(records),
        placements=placements,
    )

"""Instances, staging, requests and placements as rows and words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkctl.daemon.state import ClusterState
from skulkctl.errors import NotFound, UsageMistake
from skulkctl.placement.downloads import nodes_with
from skulkctl.placement.instances import (
    failures,
    find_instance,
    instance_items,
    unloads_text,
)
from skulkctl.placement.moves import with_moves
from skulkctl.placement.orders import InstanceMeta, Sharding
from skulkctl.placement.plans import choose_preview, refusal_lines
from skulkctl.placement.requests import find_request, request_items
from skulkctl.placement.waiting import parse_ends
from skulkd.wire import placement
from skulkd.wire.ids import InstanceId, ModelId
from skulkd.wire.instances import MlxRingInstance
from skulkd.wire.placement import (
    PlaceInstanceParams,
    PlacementPreview,
    PlacementPreviewResponse,
)
from skulkd.wire.placement_record import (
    OnDemand,
    PlacementAnswer,
    PlacementRecord,
    PlacementsAnswer,
)
from tests.cli.builders import (
    a_cluster,
    completed,
    downloads,
    failed,
    ongoing,
    pending,
    some_shards,
)
from tests.cli.stock import KITE1, KITE2
from tests.cli_inference.model_node import (
    INSTANCE,
    MODEL,
    READY,
    a_state,
    a_task,
    another_instance,
)

GIB = 1024**3


@pytest.mark.parametrize(
    ("on_demand", "in_use", "left_s", "text"),
    [
        (None, False, None, "-"),
        (OnDemand(keep_alive_seconds=300), True, None, "in use"),
        (OnDemand(keep_alive_seconds=7200), False, 7190.0, "in 1h59m"),
        (OnDemand(keep_alive_seconds=0), False, -5.0, "in 0.0s"),
        (OnDemand(), False, None, "when memory is short"),
    ],
)
def test_an_instance_tells_when_it_is_unloaded(
    on_demand: OnDemand | None, in_use: bool, left_s: float | None, text: str
) -> None:
    at = None if left_s is None else datetime.now(UTC) + timedelta(seconds=left_s)
    row = PlacementAnswer(
        instance_id=InstanceId(INSTANCE),
        model_id=ModelId(MODEL),
        record=PlacementRecord(on_demand=on_demand),
        in_use=in_use,
        unloads_at=at,
    )
    state = ClusterState(a_state(READY))
    [item] = with_moves(instance_items(state), PlacementsAnswer(placements=[row]))
    assert unloads_text(item["unloads"]) == text


@pytest.mark.parametrize(
    ("runner", "detail"),
    [
        (READY, None),
        ({"RunnerRunning": {}}, None),
        (None, "waiting for a runner"),
        ({"RunnerIdle": {}}, "started"),
        ({"RunnerConnecting": {}}, "connecting"),
        ({"RunnerLoading": {"layersLoaded": 12, "totalLayers": 30}}, "loading 12/30"),
        ({"RunnerLoading": {"layersLoaded": 0, "totalLayers": 0}}, "loading"),
        ({"RunnerLoaded": {}}, "loaded"),
        ({"RunnerWarmingUp": {}}, "warming up"),
        ({"RunnerShuttingDown": {}}, "stopping"),
        ({"RunnerFailed": {"errorMessage": "no memory\nmore"}}, "failed: no memory"),
        ({"RunnerFailed": {"errorMessage": None}}, "failed: no reason given"),
    ],
)
def test_the_detail_is_what_the_last_rank_does(runner: Any, detail: str | None) -> None:
    (item,) = instance_items(ClusterState(a_state(READY, runner)))
    assert item["detail"] == detail


def test_a_failure_is_told_before_a_rank_that_is_farther_behind() -> None:
    (item,) = instance_items(
        ClusterState(a_state(None, {"RunnerFailed": {"errorMessage": "no memory"}}))
    )
    assert (item["status"], item["detail"]) == ("failed", "failed: no memory")
    assert [failure["rank"] for failure in failures(item)] == [1]


def test_of_two_ranks_without_a_process_the_one_without_files_is_told() -> None:
    state = a_state({"RunnerIdle": {}}, {"RunnerIdle": {}})
    state["downloads"] = downloads(**{KITE2: ongoing(KITE2, MODEL, GIB, 3 * GIB)})
    (item,) = instance_items(ClusterState(state))
    assert item["detail"] == "staging 1.0GiB/3.0GiB, 1.0MiB/s, 18s left"


@pytest.mark.parametrize(
    ("download", "detail"),
    [
        (ongoing(KITE2, MODEL, GIB, 3 * GIB), "staging 1.0GiB/3.0GiB, 1.0MiB/s, 18s left"),
        (pending(KITE2, MODEL), "staging not started"),
        (failed(KITE2, MODEL, "disk full"), "staging failed: disk full"),
        (completed(KITE2, MODEL), "waiting for a runner"),
        (pending(KITE2, "another/model"), "waiting for a runner"),
    ],
)
def test_staging_is_told_while_there_is_no_runner(download: Any, detail: str) -> None:
    state = a_state(READY, None)
    state["downloads"] = downloads(**{KITE2: download})
    (item,) = instance_items(ClusterState(state))
    assert item["detail"] == detail
    assert bool(failures(item)) == detail.startswith("staging failed")


def test_an_instance_tells_sharding_context_layers_and_open_requests() -> None:
    state = a_state()
    state["tasks"] = {
        "t1": a_task("t1", "c1"),
        "t2": a_task("t2", "c2", "Pending"),
        "t3": a_task("t3", "c3", "Complete"),
        "t4": {"LoadModel": {"taskId": "t4", "taskStatus": "Running", "instanceId": INSTANCE}},
    }
    (item,) = instance_items(ClusterState(state))
    assert (item["sharding"], item["contextTokenLimit"], item["tasks"]) == ("Pipeline", 131072, 2)
    assert item["storageBytes"] == 729808896


@pytest.mark.parametrize(
    "typed", [INSTANCE, "7f3c", "7F3C2A10", MODEL, "llama-3.2-1b-instruct-4bit"]
)
def test_an_instance_is_found_by_id_prefix_or_model(typed: str) -> None:
    assert find_instance(instance_items(ClusterState(a_state())), typed)["id"] == INSTANCE


def test_a_model_that_is_placed_twice_does_not_name_an_instance() -> None:
    items = instance_items(ClusterState(another_instance(a_state(), "aaaa")))
    with pytest.raises(UsageMistake) as raised:
        find_instance(items, MODEL)
    assert raised.value.why == (f"{INSTANCE}  {MODEL}", f"aaaa  {MODEL}")
    assert find_instance(items, "aa")["id"] == "aaaa"
    with pytest.raises(NotFound):
        find_instance(items, "bb")


def test_a_request_is_found_by_task_command_or_prefix() -> None:
    tasks = {"t-1": a_task("t-1", "c-1"), "t-2": a_task("t-2", "c-2")}
    items = request_items(a_cluster(tasks=tasks))
    assert [find_request(items, typed)["taskId"] for typed in ("t-1", "c-2")] == ["t-1", "t-2"]  # type: ignore[index]
    assert find_request(items, "x") is None
    with pytest.raises(UsageMistake):
        find_request(items, "t-")


def test_files_are_on_the_nodes_that_completed_them() -> None:
    state = a_state()
    state["downloads"] = downloads(**{KITE2: completed(KITE2, MODEL), KITE1: pending(KITE1, MODEL)})
    assert nodes_with(ClusterState(state), MODEL) == ["kite2"]


@pytest.mark.parametrize(
    ("typed", "ends"),
    [
        ("failed", {"failed"}),
        ("none", set()),
        (" deleted ,failed", {"failed", "deleted"}),
    ],
)
def test_the_ends_of_a_wait(typed: str, ends: set[str]) -> None:
    assert parse_ends(typed) == ends


def test_the_choices_of_a_placement_are_those_of_the_contract() -> None:
    assert set(Sharding) == set(get_args(placement.Sharding))
    assert set(InstanceMeta) == set(get_args(placement.InstanceMeta))


def a_preview(nodes: int, sharding: Any = "Pipeline", meta: Any = "MlxRing") -> PlacementPreview:
    by_node = {f"n{number}": f"r{number}" for number in range(nodes)}
    instance = MlxRingInstance(
        instance_id=InstanceId("i"),
        shard_assignments=some_shards("m", **by_node),
        hosts_by_node={},
        ephemeral_port=1,
    )
    return PlacementPreview(
        model_id=ModelId("m"),
        sharding=sharding,
        instance_meta=meta,
        instance=instance if nodes else None,
        error=None if nodes else "does not fit",
    )


@pytest.mark.parametrize(
    ("min_nodes", "sharding", "chosen"),
    [(1, "Pipeline", 1), (2, "Pipeline", 2), (3, "Pipeline", None), (1, "Tensor", None)],
)
def test_the_smallest_preview_that_fits_the_wish_is_chosen(
    min_nodes: int, sharding: Any, chosen: int | None
) -> None:
    jaccl = a_preview(1, "Tensor", "MlxJaccl")
    previews = [a_preview(2), a_preview(1), a_preview(0, "Tensor"), jaccl]
    wanted = PlaceInstanceParams(model_id=ModelId("m"), sharding=sharding, min_nodes=min_nodes)
    found = choose_preview(PlacementPreviewResponse(previews=previews), wanted)
    assert found == (a_preview(chosen) if chosen else None)


def test_a_refusal_is_split_into_reasons_with_names_and_hints() -> None:
    message = (
        f"org/big (31.2GB weights) does not fit: [{KITE1}] Pipeline: {KITE1} needs ~41.8GB "
        f"(31.2GB weights; 1.0GB KV@8192tok); [{KITE2}] Pipeline: short"
    )
    reasons, hints = refusal_lines([message, "hint: free memory"], ClusterState(a_state()))
    assert reasons == [
        "org/big (31.2 GiB weights) does not fit: [kite1] Pipeline: kite1 needs ~41.8 GiB "
        "(31.2 GiB weights; 1.0 GiB KV@8192tok)",
        "[kite2] Pipeline: short",
    ]
    assert hints == ["free memory"]


@given(st.text(alphabet="ab;() []:", max_size=40))
def test_no_word_of_a_refusal_is_lost(message: str) -> None:
    reasons, _ = refusal_lines([message], a_cluster())
    kept = "".join(reasons)
    assert [char for char in kept if char in "ab()[]"] == [
        char for char in message if char in "ab()[]"
    ]

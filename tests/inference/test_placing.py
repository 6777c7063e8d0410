"""Placing models, and what is known of them, through the API of a real daemon."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import Any

import pytest

from skulkd.store.cards.toml import card_from_toml
from skulkd.wire.catalogue import ModelList, ModelListModel
from skulkd.wire.placement import CreateInstanceResponse, DeleteInstanceResponse
from skulkd.wire.timeline import Timeline
from tests.daemon_process import ROOT, daemon_environ, wait_until
from tests.inference.served import DEADLINE_S, Served

BUILT_IN = "mlx-community/Llama-3.2-1B-Instruct-4bit"


def test_a_second_instance_is_placed_shown_and_deleted(served: Served) -> None:
    answer = served.post("/place_instance", {"model_id": served.model, "sharding": "Tensor"})
    placed = CreateInstanceResponse.model_validate(answer.json())
    assert placed.message == "Command received."
    assert placed.model_card.model_id == served.model
    path = f"/instance/{placed.instance_id}"
    try:
        shown = served.get(path).json()
        instance = shown["MlxRingInstance"]
        assert instance["instanceId"] == placed.instance_id
        assert instance["contextTokenLimit"] == 4096
        assert list(instance["shardAssignments"]["nodeToRunner"]) == [served.daemon.node_id]
        same = served.post("/instance", {"instance": shown})
        assert same.status_code == 409
        assert placed.instance_id is not None
        served.wait_serving(placed.instance_id)
    finally:
        deleted = served.delete(path)
    DeleteInstanceResponse.model_validate(deleted.json())
    assert served.get(path).status_code == served.delete(path).status_code == 404
    assert served.get(path).json()["error"]["message"] == "Instance not found"
    wait_until(lambda: len(served.records()) == 1, "its runner to go", DEADLINE_S)
    assert len(served.daemon.get("/state")["runners"]) == 1


def test_an_instance_is_created_exactly_as_given(fragile: Served) -> None:
    placed = fragile.post("/place_instance", {"model_id": fragile.model}).json()["instance_id"]
    shown = fragile.get(f"/instance/{placed}").json()
    fragile.delete(f"/instance/{placed}")
    shown["MlxRingInstance"]["contextTokenLimit"] = 7
    answer = fragile.post("/instance", {"instance": shown})
    assert answer.json()["instance_id"] == placed
    instance = fragile.get(f"/instance/{placed}").json()["MlxRingInstance"]
    assert instance["contextTokenLimit"] == 4096, "the node computes it itself"
    fragile.wait_serving(placed)
    fragile.delete(f"/instance/{placed}")
    _check_refused_instances(fragile, shown)


def _check_refused_instances(fragile: Served, shown: Any) -> None:
    instance = shown["MlxRingInstance"]
    [shard] = instance["shardAssignments"]["runnerToShard"].values()
    card = shard["PipelineShardMetadata"]["modelCard"]
    size = card["storageSize"]["inBytes"]
    card["storageSize"]["inBytes"] = 2**50
    refused = fragile.post("/instance", {"instance": shown})
    assert refused.status_code == 400
    assert "Required: 1048576.0GB, Available: " in refused.json()["error"]["message"]
    card["storageSize"]["inBytes"] = size
    nodes = instance["shardAssignments"]["nodeToRunner"]
    nodes["somebody"] = nodes.pop(fragile.daemon.node_id)
    refused = fragile.post("/instance", {"instance": shown})
    assert refused.status_code == 400
    assert "[somebody]" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status", "fragment"),
    [
        ({"model_id": "skulk/tiny-lama"}, 404, "did you mean skulk/tiny-llama"),
        ({"model_id": "nobody/nothing"}, 404, "unknown model"),
        ({"model_id": "../../etc"}, 404, "unknown model"),
        ({"model_id": BUILT_IN}, 400, "skulkctl model import"),
        ({"model_id": "skulk/tiny-llama", "min_nodes": 2}, 400, "min_nodes=2"),
        ({"model_id": "skulk/tiny-llama", "sharding": "Sideways"}, 422, "Tensor"),
        ({}, 422, "Field required"),
    ],
)
def test_what_cannot_be_placed_is_refused_with_a_reason(
    served: Served, body: dict[str, Any], status: int, fragment: str
) -> None:
    answer = served.post("/place_instance", body)
    assert answer.status_code == status
    assert fragment in answer.text


def test_a_node_that_is_excluded_is_not_used(served: Served) -> None:
    body = {"model_id": served.model, "excluded_nodes": [served.daemon.node_id]}
    answer = served.post("/place_instance", body)
    assert answer.status_code == 400
    assert "excluded_nodes" in answer.json()["error"]["message"]
    assert "hint: " in answer.json()["error"]["message"]


def test_the_catalogue_knows_what_can_be_placed_and_what_is_here(served: Served) -> None:
    everything = ModelList.model_validate(served.get("/models").json())
    ids = {model.id for model in everything.data}
    assert {served.model, BUILT_IN} <= ids
    assert len(ids) >= 25
    openai = ModelList.model_validate(served.get("/v1/models").json())
    assert {model.id for model in openai.data} == ids
    here = ModelList.model_validate(served.get("/v1/models?status=downloaded").json())
    assert [model.id for model in here.data] == [served.model]
    assert here.data[0].context_length == 4096


@pytest.mark.parametrize("spelling", ["skulk/tiny-llama", "skulk%2Ftiny-llama"])
def test_a_card_of_ones_own_is_kept_and_deleted(served: Served, spelling: str) -> None:
    added = served.post("/models/add", {"model_id": served.model})
    assert ModelListModel.model_validate(added.json()).is_custom
    [file] = (served.daemon.home / "custom_model_cards").glob("*.toml")
    assert card_from_toml(file.read_text(), "card").model_id == served.model
    deleted = served.delete(f"/models/custom/{spelling}")
    assert deleted.json() == {"message": "Model card deleted", "model_id": served.model}
    assert not file.exists()
    again = served.delete(f"/models/custom/{spelling}")
    assert again.status_code == 404
    assert again.json()["error"]["message"] == "Custom model card not found"
    events = served.daemon.get("/events")
    kinds = [kind for event in events for kind in event if kind.startswith("CustomModelCard")]
    assert kinds[-2:] == ["CustomModelCardAdded", "CustomModelCardDeleted"]


def test_a_card_of_an_unknown_model_cannot_be_kept(served: Served) -> None:
    answer = served.post("/models/add", {"model_id": "nobody/nothing"})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("Failed to fetch model: ")


def test_a_model_imported_while_the_daemon_runs_is_seen(served: Served) -> None:
    home = served.daemon.home
    source = home / "models" / "skulk--tiny-llama"
    command = [sys.executable, "-m", "skulkd.store", "import", str(source), "--id", "local/copy"]
    done = subprocess.run(command, cwd=ROOT, env=daemon_environ(home), check=False, timeout=600)
    assert done.returncode == 0
    try:
        placed = served.post("/place_instance", {"model_id": "local/copy"})
        assert placed.status_code == 200, placed.text
        served.delete(f"/instance/{placed.json()['instance_id']}")
    finally:
        shutil.rmtree(home / "models" / "local--copy")
    wait_until(lambda: len(served.records()) == 1, "its runner to go", DEADLINE_S)


def test_diagnostics_show_the_runner_and_its_phases(served: Served) -> None:
    served.chat()
    served.wait_idle()
    bundle = served.daemon.get("/v1/diagnostics/node")
    [record] = bundle["supervisorRunners"]
    roles = {process["pid"]: process["role"] for process in bundle["processes"]}
    assert roles[record["pid"]] == "runner"
    assert bundle["warnings"] == []
    [placement] = bundle["placements"]
    assert placement["runners"][0]["statusKind"] in ("RunnerReady", "RunnerRunning")
    timeline = Timeline.model_validate(served.daemon.get("/v1/cluster/timeline"))
    [runner] = timeline.runners
    assert runner.runner_id == record["runnerId"]
    assert runner.pid == record["pid"]
    assert [entry.at for entry in timeline.timeline] == sorted(e.at for e in timeline.timeline)
    assert "decode_stream" in {entry.phase for entry in timeline.timeline}


def test_metrics_count_tokens_and_runners(served: Served) -> None:
    def figures() -> dict[str, float]:
        lines = served.get("/metrics").text.splitlines()
        pairs = [line.rpartition(" ") for line in lines if line.startswith("skulk_")]
        return {name: float(value) for name, _, value in pairs}

    before = figures()
    served.chat(max_tokens=5)
    after = figures()
    label = f'{{model="{served.model}"}}'

    def gained(name: str) -> float:
        return after[name + label] - before.get(name + label, 0.0)

    assert gained("skulk_completion_tokens_total") == 5
    assert gained("skulk_prompt_tokens_total") > 0
    assert gained("skulk_time_to_first_token_seconds_count") == 1
    assert 0 < gained("skulk_inter_token_seconds_count") <= 4
    assert gained("skulk_request_queue_seconds_count") == 1
    assert after["skulk_instances" + label] == after["skulk_instances_ready" + label] == 1
    assert after["skulk_stuck_ranks" + label] == 0
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`(skulk_\w+)", page))
    served_names = {name.partition("{")[0] for name in after}
    served_names |= {name.removesuffix("_bucket") for name in served_names}
    # Without a value here: no event log is written, no node is lost, no token and no TLS is used.
    empty = {
        "skulk_event_log_counting_only",
        "skulk_cluster_member_lost_timestamp_seconds",
        "skulk_token_requests_total",
        "skulk_token_requests_open",
        "skulk_tls_certificate_expiry_timestamp_seconds",
    }
    assert documented - served_names <= empty
    assert after["skulk_tokens_generated_total"] - before["skulk_tokens_generated_total"] == 5
    assert after["skulk_requests_in_flight"] == after["skulk_requests_queued"] == 0
    runners = {name: value for name, value in after.items() if name.startswith("skulk_runners{")}
    assert sum(runners.values()) == 1
    assert all(f'model="{served.model}"' in name for name in runners)

"""Whole documents: the three seeds, a state with every variant, a log with every event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from pydantic import BaseModel, TypeAdapter

from skulkd.wire.admin import RestartAnswer
from skulkd.wire.config_api import ConfigAnswer, ConfigPutAnswer
from skulkd.wire.diagnostics import ClusterDiagnostics, RunnerPhase, RunnerSupervisorDiagnostics
from skulkd.wire.downloads import DownloadProgress
from skulkd.wire.errors import DetailError, ErrorEnvelope
from skulkd.wire.events import Event
from skulkd.wire.health import HealthCode, HealthLevel
from skulkd.wire.identity import NodeIdentityAnswer
from skulkd.wire.instances import Instance
from skulkd.wire.runners import RunnerStatus
from skulkd.wire.state import State
from skulkd.wire.storage import (
    StoreDeleteAnswer,
    StoreDownloadAnswer,
    StoreDownloads,
    StoreHealth,
    StoreRegistry,
)
from skulkd.wire.tasks import Task, TaskStatus
from skulkd.wire.timeline import ClusterTimelineRunner

DATA = Path(__file__).parents[1] / "data"
EVENTS: TypeAdapter[Any] = TypeAdapter(list[Event])
DOCUMENTS: list[tuple[str, type[BaseModel]]] = [
    ("seed_runner_supervisor", RunnerSupervisorDiagnostics),
    ("seed_timeline_runner", ClusterTimelineRunner),
    ("seed_cluster_diagnostics", ClusterDiagnostics),
    ("state_full", State),
]

# Answers that the reference builds by hand, so its OpenAPI document does not describe them.
HAND_BUILT: list[tuple[type[BaseModel], Any]] = [
    (NodeIdentityAnswer, {"nodeId": "n1", "hostname": "kite1", "ipAddress": "192.168.1.5"}),
    (RestartAnswer, {"status": "restarting", "node_id": "n1"}),
    (RestartAnswer, {"status": "restart_already_pending", "node_id": "n1"}),
    (RestartAnswer, {"status": "restart_sent", "node_id": "n2"}),
    (ConfigPutAnswer, {"success": True, "message": "Saved.", "requiresRestart": False}),
    (StoreHealth, {"storePath": "/s", "freeBytes": 1, "totalBytes": 3, "usedBytes": 2}),
    (
        StoreRegistry,
        {
            "entries": [
                {
                    "model_id": "org/name",
                    "store_path": "org--name",
                    "files": ["config.json"],
                    "downloaded_at": "2026-03-20T14:32:00+00:00",
                    "total_bytes": 123,
                    "repo_has_projector": None,
                }
            ]
        },
    ),
    (
        StoreDownloads,
        {
            "downloads": [
                {"modelId": "org/name", "status": status, "progress": 0.5, "error": None}
                for status in ("pending", "downloading", "complete", "failed")
            ]
        },
    ),
    (StoreDeleteAnswer, {"modelId": "org/name", "deleted": True}),
    (
        ErrorEnvelope,
        {"error": {"message": "gone", "type": "Not Found", "param": None, "code": 404}},
    ),
    (DetailError, {"detail": "Method Not Allowed"}),
]
SHORT_ANSWERS: list[tuple[type[BaseModel], Any]] = [
    (StoreDownloadAnswer, {"status": "not_found"}),
    (StoreDownloadAnswer, {"status": "error", "error": "HTTP 500"}),
    (StoreDownloadAnswer, {"modelId": "org/name", "status": "complete", "progress": 1.0}),
    (
        ConfigAnswer,
        {
            "config": {},
            "configPath": "skulk.yaml",
            "fileExists": False,
            "effective": {"kv_cache_backend": "default"},
        },
    ),
]


def document(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def keys_in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return [(key, keys_in_order(inner)) for key, inner in value.items()]
    return [keys_in_order(inner) for inner in value] if isinstance(value, list) else None


def variants(union: Any) -> set[str]:
    return {variant.__name__ for variant in get_args(get_args(union)[0])}


@pytest.mark.parametrize(("name", "model"), DOCUMENTS)
def test_document_comes_back_equal_and_in_the_same_order(name: str, model: type[BaseModel]) -> None:
    original = document(name)
    written = json.loads(model.model_validate_json(json.dumps(original)).model_dump_json())
    assert written == original
    assert keys_in_order(written) == keys_in_order(original)
    jsonschema.Draft202012Validator(model.model_json_schema(mode="serialization")).validate(written)


def test_state_document_shows_every_variant() -> None:
    state = document("state_full")
    assert {tag for entry in state["instances"].values() for tag in entry} == variants(Instance)
    assert {tag for entry in state["runners"].values() for tag in entry} == variants(RunnerStatus)
    assert {tag for entry in state["tasks"].values() for tag in entry} == variants(Task)
    assert {tag for e in state["downloads"]["n1"] for tag in e} == variants(DownloadProgress)


def test_empty_state_has_all_keys_in_wire_order() -> None:
    assert list(json.loads(State().model_dump_json())) == list(document("state_full"))
    assert State().last_event_applied_idx == -1


def test_event_log_comes_back_equal_in_snake_case() -> None:
    log = document("events_full")
    assert {tag for entry in log for tag in entry} == variants(Event)
    parsed = EVENTS.validate_json(json.dumps(log))
    written = json.loads(EVENTS.dump_json(parsed, by_alias=False))
    assert written == log
    assert keys_in_order(written) == keys_in_order(log)


@pytest.mark.parametrize(("model", "answer"), HAND_BUILT)
def test_hand_built_answer_comes_back_equal(model: type[BaseModel], answer: Any) -> None:
    written = json.loads(model.model_validate_json(json.dumps(answer)).model_dump_json())
    assert written == answer
    assert keys_in_order(written) == keys_in_order(answer)


@pytest.mark.parametrize(("model", "answer"), SHORT_ANSWERS)
def test_short_answer_of_the_reference_is_read(model: type[BaseModel], answer: Any) -> None:
    assert model.model_validate_json(json.dumps(answer)).model_dump(exclude_unset=True) == answer


def test_closed_sets_outside_the_openapi_document_are_complete() -> None:
    expected = ("Pending", "Running", "Complete", "TimedOut", "Failed", "Cancelled")
    assert get_args(TaskStatus) == expected
    theirs = {"download_failed", "disk_full", "disk_low", "unreachable"}
    ours = {"event_log", "task_down", "state_not_written", "bridge_loop"}
    assert set(get_args(HealthCode)) == theirs | ours
    assert get_args(HealthLevel) == ("ok", "warn", "error")


def test_phases_are_the_twenty_two_of_the_seed_in_its_order() -> None:
    assert get_args(RunnerPhase) == (
        "created", "idle", "connect_group", "load_model", "warmup", "task_submission",
        "task_agreement", "prompt_build", "vision_preprocess", "kv_cache_lookup",
        "prefill_barrier", "prefill_pipeline", "prefill_stream", "decode_barrier",
        "decode_wait_first_token", "decode_stream", "parser", "cancel_requested",
        "cancel_observed", "completion", "error", "shutdown_cleanup",
    )  # fmt: skip

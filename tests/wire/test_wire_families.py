"""The two model families and the scalars they share."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from skulkd.wire.base import Memory, format_offset, format_zulu
from skulkd.wire.cards import PlacementCardConfig
from skulkd.wire.catalogue import ModelList
from skulkd.wire.chat import GenerationStats
from skulkd.wire.diagnostics import DiagnosticCaptureRequest, NodeRuntimeDiagnostics
from skulkd.wire.ids import ModelId
from skulkd.wire.machine import MemoryUsage, SystemPerformanceProfile
from skulkd.wire.placement import PlaceInstanceParams
from skulkd.wire.shards import ShardAssignments
from skulkd.wire.state import State
from skulkd.wire.tasks import TextGenerationTaskParams
from skulkd.wire.topology import Multiaddr
from skulkd.wire.tracing import UpdateTracingStateRequest

RUNTIME = {
    "nodeId": "n1",
    "hostname": "kite1",
    "isMaster": True,
    "cwd": "/srv",
    "configPath": "skulk.yaml",
    "configFileExists": False,
    "skulkVersion": "1.3.0",
    "skulkCommit": "Unknown",
    "libp2PNamespace": "lab",
    "pythonUnbuffered": True,
    "tracingEnabled": False,
    "structuredLoggingConfigured": False,
}


def error_types(model: type[BaseModel], body: str) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate_json(body)
    return [error["type"] for error in caught.value.errors()]


@pytest.mark.parametrize("body", ['{"inBytes": 5}', '{"in_bytes": 5}'])
def test_strict_family_reads_either_spelling_and_writes_camel_case(body: str) -> None:
    assert Memory.model_validate_json(body).model_dump_json() == '{"inBytes":5}'


@pytest.mark.parametrize(
    ("model", "body", "expected"),
    [
        (Memory, '{"inBytes": 5, "unit": "B"}', ["extra_forbidden"]),
        (Memory, '{"inBytes": 1.0}', ["int_type"]),
        (Memory, '{"inBytes": "1"}', ["int_type"]),
        (UpdateTracingStateRequest, '{"enabled": "true"}', ["bool_type"]),
        (UpdateTracingStateRequest, '{"enabled": 1}', ["bool_type"]),
        (DiagnosticCaptureRequest, '{"sampleDurationSeconds": 0.5}', ["greater_than_equal"]),
        (DiagnosticCaptureRequest, '{"sampleDurationSeconds": "3"}', ["float_type"]),
    ],
)
def test_strict_family_refuses_unknown_keys_and_coercion(
    model: type[BaseModel], body: str, expected: list[str]
) -> None:
    assert error_types(model, body) == expected


def test_whole_number_is_a_float_to_the_strict_family() -> None:
    request = DiagnosticCaptureRequest.model_validate_json('{"sampleDurationSeconds": 2}')
    assert request.sample_duration_seconds == 2.0


def test_lenient_family_ignores_unknown_keys_and_coerces() -> None:
    body = '{"model_id": "org/name", "min_nodes": "2", "modelId": "other", "colour": "red"}'
    params = PlaceInstanceParams.model_validate_json(body)
    assert (params.model_id, params.min_nodes) == ("org/name", 2)
    assert list(json.loads(params.model_dump_json())) == [
        "model_id",
        "sharding",
        "instance_meta",
        "min_nodes",
        "excluded_nodes",
        "only_nodes",
    ]


@pytest.mark.parametrize("sharding", ["pipeline", None])
def test_closed_set_is_case_sensitive_and_not_null(sharding: str | None) -> None:
    body = json.dumps({"model_id": "org/name", "sharding": sharding})
    assert error_types(PlaceInstanceParams, body) == ["literal_error"]


def test_models_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Memory(in_bytes=1).in_bytes = 2


def test_strict_model_inside_lenient_one_follows_its_own_family_or_the_callers_wish() -> None:
    stats = GenerationStats(
        prompt_tps=100.0,
        generation_tps=20.0,
        prompt_tokens=5,
        generation_tokens=2,
        peak_memory_usage=Memory(in_bytes=123),
    )
    assert '"peak_memory_usage":{"inBytes":123}' in stats.model_dump_json()
    assert '"peak_memory_usage":{"in_bytes":123}' in stats.model_dump_json(by_alias=False)


def test_nulls_are_written() -> None:
    assert json.loads(State().model_dump_json())["topology"] == {"nodes": [], "connections": {}}
    runtime = NodeRuntimeDiagnostics.model_validate_json(json.dumps(RUNTIME))
    assert json.loads(runtime.model_dump_json())["loggingIngestUrl"] is None


def test_namespace_keeps_its_odd_spelling() -> None:
    runtime = NodeRuntimeDiagnostics.model_validate_json(json.dumps(RUNTIME))
    assert runtime.libp2p_namespace == "lab"
    assert json.loads(runtime.model_dump_json())["libp2PNamespace"] == "lab"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-02T03:04:05.678901Z", "2026-01-02T03:04:05.678901Z"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000000Z"),
        ("2026-01-02T03:04:05.5+00:00", "2026-01-02T03:04:05.500000Z"),
        ("2026-01-02T05:04:05+02:00", "2026-01-02T03:04:05.000000Z"),
    ],
)
def test_last_seen_is_written_in_utc_with_six_digits_and_z(text: str, expected: str) -> None:
    state = State.model_validate_json(json.dumps({"lastSeen": {"n1": text}}))
    assert json.loads(state.model_dump_json())["lastSeen"] == {"n1": expected}


@pytest.mark.parametrize("text", ["2026-01-02T03:04:05", "yesterday", "", 1767323045, None])
def test_last_seen_without_zone_or_as_number_is_refused(text: Any) -> None:
    assert len(error_types(State, json.dumps({"lastSeen": {"n1": text}}))) == 1


def test_moment_text_of_diagnostics_has_an_offset_and_of_state_a_z() -> None:
    moment = datetime(2026, 1, 2, 5, 4, 5, tzinfo=timezone(timedelta(hours=2)))
    assert format_offset(moment) == "2026-01-02T03:04:05.000000+00:00"
    assert format_zulu(moment) == "2026-01-02T03:04:05.000000Z"
    assert State(last_seen={"n1": moment}).last_seen["n1"] == moment.astimezone(UTC)


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("/ip4/192.168.1.6/tcp/52415", ("ip4", "192.168.1.6", 52415)),
        ("/ip6/fe80::1/udp/1", ("ip6", "fe80::1", 1)),
        ("/dns4/kite1.local/tcp/52415/p2p/12D3", ("dns4", "kite1.local", 52415)),
    ],
)
def test_parts_of_an_address_follow_from_it(address: str, parts: tuple[str, str, int]) -> None:
    made = Multiaddr.model_validate({"address": address, "port": 9, "ip_address": "1.1.1.1"})
    assert (made.address_type, made.ip_address, made.port) == parts
    assert made == Multiaddr(address=address)


@pytest.mark.parametrize(
    "address", ["", "192.168.1.6:52415", "/ip4/192.168.1.6", "/ip4/1.1.1.1/tcp/65536", 5, None]
)
def test_address_without_host_and_port_is_refused(address: Any) -> None:
    assert len(error_types(Multiaddr, json.dumps({"address": address}))) == 1


def test_compatible_backends_are_written_sorted_and_once() -> None:
    card = PlacementCardConfig(compatible_backends=["mlx", "llama_cpp", "mlx"])
    assert card.compatible_backends == ["llama_cpp", "mlx"]


def test_runner_without_shard_is_refused() -> None:
    body = '{"modelId": "m", "runnerToShard": {}, "nodeToRunner": {"n1": "r1"}}'
    with pytest.raises(ValidationError, match="runner r1 of node n1 has no shard"):
        ShardAssignments.model_validate_json(body)


def test_reading_not_taken_is_left_out_and_an_absent_key_is_unknown() -> None:
    measured = SystemPerformanceProfile(gpu_usage=None, temp=0.0)
    assert json.loads(measured.model_dump_json()) == {"temp": 0.0, "accelerator": None}
    for body in ("{}", '{"temp": null}'):  # null is what older nodes send
        assert SystemPerformanceProfile.model_validate_json(body).temp is None
    assert error_types(MemoryUsage, '{"ramTotal": null}')[0] == "model_type"


@pytest.mark.parametrize("written", ["{}", "[]"])  # the list is in journals of older versions
def test_image_hashes_are_a_map(written: str) -> None:
    body = f'{{"model": "m", "input": [], "image_hashes": {written}}}'
    params = TextGenerationTaskParams.model_validate_json(body)
    assert json.loads(params.model_dump_json())["image_hashes"] == {}
    assert (
        json.loads(TextGenerationTaskParams(model=ModelId("m"), input=[]).model_dump_json())[
            "image_hashes"
        ]
        == {}
    )


def test_catalogue_is_stamped_with_the_time_of_the_answer() -> None:
    before = int(datetime.now(UTC).timestamp())
    listed = ModelList.model_validate_json('{"data": [{"id": "org/name"}]}')
    assert before <= listed.data[0].created <= int(datetime.now(UTC).timestamp())

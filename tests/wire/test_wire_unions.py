"""Tagged and untagged unions, in and out, and what they say of themselves in JSON schema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from schema_samples import Drawn, Sampler

from skulkd.wire.downloads import DownloadProgress
from skulkd.wire.events import Event, InstanceDeleted, RunnerStatusUpdated
from skulkd.wire.instances import Instance, MlxRingInstance
from skulkd.wire.runners import RunnerFailed, RunnerIdle, RunnerLoading, RunnerReady, RunnerStatus
from skulkd.wire.shards import ShardMetadata
from skulkd.wire.state import State
from skulkd.wire.tasks import Task
from skulkd.wire.topology import Edge, RdmaConnection, SocketConnection

STATUS: TypeAdapter[Any] = TypeAdapter(RunnerStatus)
INSTANCE: TypeAdapter[Any] = TypeAdapter(Instance)
EDGE: TypeAdapter[Any] = TypeAdapter(Edge)
EVENT: TypeAdapter[Any] = TypeAdapter(Event)
UNIONS: dict[str, TypeAdapter[Any]] = {
    "Instance": INSTANCE,
    "ShardMetadata": TypeAdapter(ShardMetadata),
    "RunnerStatus": STATUS,
    "DownloadProgress": TypeAdapter(DownloadProgress),
    "Task": TypeAdapter(Task),
    "Event": EVENT,
    "State": TypeAdapter(State),
}
SCHEMAS = {name: adapter.json_schema(mode="serialization") for name, adapter in UNIONS.items()}
RING = {
    "instanceId": "i1",
    "shardAssignments": {"modelId": "m", "runnerToShard": {}, "nodeToRunner": {}},
    "hostsByNode": {},
    "ephemeralPort": 55192,
}


def errors(adapter: TypeAdapter[Any], value: Any) -> list[tuple[str, tuple[int | str, ...]]]:
    with pytest.raises(ValidationError) as caught:
        adapter.validate_json(json.dumps(value))
    return [(error["type"], error["loc"]) for error in caught.value.errors()]


def test_variant_is_written_under_its_name_also_when_it_has_no_fields() -> None:
    assert RunnerReady().model_dump_json() == '{"RunnerReady":{}}'
    assert STATUS.dump_python(RunnerLoading(layers_loaded=2)) == {
        "RunnerLoading": {"layersLoaded": 2, "totalLayers": 0}
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"RunnerIdle": {}}, RunnerIdle()),
        ({"RunnerLoading": {"layersLoaded": 2}}, RunnerLoading(layers_loaded=2)),
        ({"RunnerLoading": {"layers_loaded": 2}}, RunnerLoading(layers_loaded=2)),
        ({"layersLoaded": 2}, RunnerLoading(layers_loaded=2)),
        ({"errorMessage": None}, RunnerFailed()),
    ],
)
def test_variant_is_read_with_its_tag_or_by_its_fields(value: Any, expected: Any) -> None:
    assert STATUS.validate_json(json.dumps(value)) == expected
    assert STATUS.validate_python(value) == expected
    assert type(expected).model_validate_json(json.dumps(value)) == expected


def test_untagged_instance_is_recognised_by_either_spelling() -> None:
    made = INSTANCE.validate_json(json.dumps(RING))
    assert isinstance(made, MlxRingInstance)
    snake = {"hosts_by_node" if key == "hostsByNode" else key: v for key, v in RING.items()}
    assert INSTANCE.validate_json(json.dumps(snake)) == made
    assert INSTANCE.validate_python(made) is made


@pytest.mark.parametrize(
    ("adapter", "value"),
    [
        (STATUS, {"RunnerSleeping": {}}),
        (STATUS, {}),
        (STATUS, {"RunnerIdle": {}, "RunnerReady": {}}),
        (STATUS, "RunnerIdle"),
        (STATUS, None),
        (EDGE, {"sinkRdmaIface": "rdma_en3"}),
        (UNIONS["ShardMetadata"], {"modelCard": {}, "deviceRank": 0}),
    ],
)
def test_value_that_names_no_single_variant_is_one_error_listing_them(
    adapter: TypeAdapter[Any], value: Any
) -> None:
    with pytest.raises(ValidationError) as caught:
        adapter.validate_json(json.dumps(value))
    [error] = caught.value.errors()
    assert error["type"] == "unknown_variant"
    for name in ("RunnerIdle", "RunnerFailed") if adapter is STATUS else ():
        assert name in error["msg"]


def test_errors_speak_only_of_the_variant_that_was_named() -> None:
    assert errors(STATUS, {"RunnerLoading": {"layersLoaded": "2", "x": 1}}) == [
        ("int_type", ("RunnerLoading", "layersLoaded")),
        ("extra_forbidden", ("RunnerLoading", "x")),
    ]
    assert errors(STATUS, {"RunnerIdle": None}) == [("model_type", ("RunnerIdle",))]
    assert errors(INSTANCE, {**RING, "colour": "red"}) == [
        ("extra_forbidden", ("MlxRingInstance", "colour"))
    ]


def test_edge_has_no_tag_and_is_known_by_its_keys() -> None:
    socket = {"sinkMultiaddr": {"address": "/ip4/192.168.1.6/tcp/52415"}}
    rdma = {"sourceRdmaIface": "rdma_en2", "sinkRdmaIface": "rdma_en3"}
    assert isinstance(EDGE.validate_python(socket), SocketConnection)
    assert isinstance(EDGE.validate_python(rdma), RdmaConnection)
    assert EDGE.dump_python(EDGE.validate_python(rdma)) == rdma


def test_event_is_written_in_snake_case_inside_its_tag_on_request() -> None:
    event = RunnerStatusUpdated(
        event_id="e1", runner_id="r1", runner_status=RunnerLoading(total_layers=4)
    )
    assert json.loads(event.model_dump_json(by_alias=False)) == {
        "RunnerStatusUpdated": {
            "event_id": "e1",
            "runner_id": "r1",
            "runner_status": {"RunnerLoading": {"layers_loaded": 0, "total_layers": 4}},
        }
    }
    assert EVENT.validate_json(event.model_dump_json(by_alias=False)) == event


def test_events_get_ids_of_their_own() -> None:
    assert InstanceDeleted(instance_id="i").event_id != InstanceDeleted(instance_id="i").event_id


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_schema_shows_the_tag_in_both_directions(mode: Any) -> None:
    schema = STATUS.json_schema(mode=mode)
    definition = schema["$defs"]["RunnerLoading"]
    assert {"$ref": "#/$defs/RunnerLoading"} in schema["oneOf"]
    assert list(definition["properties"]) == definition["required"] == ["RunnerLoading"]
    inner = definition["properties"]["RunnerLoading"]
    assert list(inner["properties"]) == ["layersLoaded", "totalLayers"]
    assert inner["additionalProperties"] is False


@pytest.mark.parametrize("name", UNIONS)
# A whole state is a large example; a busy machine must not turn that into a failure.
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_anything_our_schema_allows_survives_the_round_trip(name: str, data: Any) -> None:
    adapter = UNIONS[name]
    schema = SCHEMAS[name]
    parsed = adapter.validate_json(json.dumps(Sampler(schema, Drawn(data.draw)).sample(schema)))
    text = adapter.dump_json(parsed)
    jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    assert adapter.validate_json(text) == parsed
    assert adapter.validate_python(json.loads(text)) == parsed
    assert adapter.validate_json(adapter.dump_json(parsed, by_alias=False)) == parsed

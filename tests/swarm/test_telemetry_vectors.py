"""Load telemetry against the recorded reference: every number, every byte of the fingerprint."""

from __future__ import annotations

import json
import random
from collections import deque
from datetime import UTC, datetime
from typing import Any

import pytest

from skulkd.swarm import capabilities, catalog, js_values, telemetry
from skulkd.swarm.node_config import NodeSettings
from skulkd.swarm.telemetry import Counters, Discovery, Machine
from tests.swarm.vectors import VECTORS, case_id, cases, same

NOW = datetime(2026, 6, 15, tzinfo=UTC)


def a_node(**changes: Any) -> NodeSettings:
    return NodeSettings(gateway_base_url="http://127.0.0.1", server_name="box", **changes)


@pytest.mark.parametrize("case", cases("catalog_fingerprint"), ids=case_id)
def test_catalog_fingerprint_is_byte_compatible(case: dict[str, Any]) -> None:
    if "expected_canonical_json" in case:
        assert catalog.catalog_projection(case["models"]) == case["expected_canonical_json"]
    assert catalog.catalog_fingerprint(case["models"]) == case["expected"]


def test_names_sort_as_icu_does_and_not_by_code_point() -> None:
    names = list(VECTORS["collation"]["sorted_example"])
    shuffled = list(names)
    random.Random(7).shuffle(shuffled)
    assert sorted(shuffled, key=catalog.collation_key) == names
    primary = VECTORS["collation"]["primary"]
    for left in primary:
        for right in primary:
            ours = catalog.collation_key(left)[0] < catalog.collation_key(right)[0]
            assert ours == (primary[left] < primary[right]), (left, right)


@pytest.mark.parametrize("case", cases("round_ratio_3"), ids=str)
def test_ratios_round_half_up(case: dict[str, Any]) -> None:
    assert js_values.round_ratio(float(case["input"])) == case["expected"]


@pytest.mark.parametrize("case", cases("non_negative_integer"), ids=str)
def test_counts_are_floored_numbers(case: dict[str, Any]) -> None:
    assert js_values.non_negative_integer(case["input"]) == case["expected"]


@pytest.mark.parametrize("case", cases("execution_class_capacity"), ids=str)
def test_capacity_of_one_class(case: dict[str, Any]) -> None:
    given = case["input"]
    found = telemetry.class_capacity(
        given["maxConcurrency"], given["activeJobs"], given["queuedJobs"], drain=given["drainMode"]
    )
    same(found, case["expected"])


@pytest.mark.parametrize("case", cases("load_telemetry"), ids=case_id)
def test_load_telemetry(case: dict[str, Any]) -> None:
    config, state, given = case["config"], case["state"], case.get("input", {})
    settings = a_node(
        max_concurrent_jobs=config.get("maxConcurrentJobs", 1),
        max_concurrent_llm_jobs=config.get("maxConcurrentLlmJobs"),
        generic_jobs_enabled=config.get("genericJobsEnabled", False),
        generic_job_max_concurrency=config.get("genericJobMaxConcurrency", 1),
    )
    queue = state.get("queue", {})
    counters = Counters(
        lambda: NOW,
        active_llm=state.get("activeLlmJobs", 0),
        active_generic=state.get("activeGenericJobs", 0),
        queued_llm=queue.get("llmQueuedJobs", 0),
        queued_generic=queue.get("genericQueuedJobs", 0),
        latencies_ms=deque(state.get("latency", []), 50),
        failures=deque(state.get("failures", []), 20),
    )
    discovery = Discovery(
        given.get("models", []),
        given.get("discoveryLatencyMs"),
        given.get("discoveryFailureCount", 0),
    )
    same(telemetry.load_telemetry(settings, counters, discovery), case["expected"])


def test_rings_keep_fifty_latencies_and_twenty_failures() -> None:
    case = VECTORS["ring_buffers"]
    counters = Counters(lambda: NOW)
    for number in range(case["jobs"]):
        counters.begin("chat")
        code = f"e{number}" if number % 4 == 3 else "  "
        counters.finish("chat", float(number), ok=number % 2 == 0, code=code)
    counters.finish("chat", -5.0, ok=True)
    expected = case["expected"]
    assert len(counters.latencies_ms) == expected["latency_samples_kept"]
    assert len(counters.failures) == expected["failures_kept"]
    newest = [failure["code"] for failure in counters.failures][:6]
    assert newest == expected["newest_first_codes"]
    labels = {failure["execution_class"] for failure in counters.failures}
    assert labels == {expected["execution_class_label_for_llm"]}
    assert counters.active_llm == expected["active_llm_after"]
    future = expected["max_latency_sample_when_started_at_is_in_the_future"]
    assert counters.latencies_ms[-1] == future


@pytest.mark.parametrize("case", cases("ram_total_bucket"), ids=str)
def test_memory_is_told_in_buckets(case: dict[str, Any]) -> None:
    assert telemetry.ram_bucket(case["bytes"]) == case["expected"]


@pytest.mark.parametrize("case", cases("public_vram_tier_from_gb"), ids=str)
def test_gpu_memory_is_told_in_tiers(case: dict[str, Any]) -> None:
    assert telemetry.vram_tier(case["max_vram_gb"]) == case["expected"]


@pytest.mark.parametrize("case", cases("vram_tier_passthrough"), ids=str)
def test_unknown_tiers_are_not_told(case: dict[str, Any]) -> None:
    given = case["input"]
    assert telemetry.shown_vram_tier(given["vram_tier"], given["gpu_count"]) == case["expected"]


@pytest.mark.parametrize("case", cases("hardware_pressure"), ids=str)
def test_hardware_pressure(case: dict[str, Any]) -> None:
    given = case["input"]["os"]
    load = given["load"][0] if given["load"] else 0
    machine = Machine(given["cores"], load, given["total"], given["free"])
    found = telemetry.hardware_pressure(machine, case["input"]["capability_payload"], NOW)
    same(found, case["expected"])


def test_hardware_is_told_only_when_the_owner_said_so() -> None:
    hardware = {"schema_version": 1}
    opted_in = a_node(hardware_telemetry_enabled=True)
    counters = Counters(lambda: NOW)
    silent = telemetry.load_telemetry(a_node(), counters, hardware=hardware)
    told = telemetry.load_telemetry(opted_in, counters, hardware=hardware)
    assert "hardware_pressure" not in silent
    assert told["hardware_pressure"] == hardware


def test_capacity_of_heartbeat_and_poll_have_the_reference_shape() -> None:
    captures = VECTORS["wire_captures_0_1_79"]
    settings = a_node(max_concurrent_jobs=3, max_concurrent_llm_jobs=2)
    models = captures["heartbeat_full"]["body"]["models"]
    found = telemetry.load_telemetry(settings, Counters(lambda: NOW), Discovery(models))
    same(
        telemetry.heartbeat_capacity(found, load_reporting=True),
        captures["heartbeat_full"]["body"]["capacity"],
    )
    same(
        telemetry.heartbeat_capacity(found, load_reporting=False),
        captures["heartbeat_legacy_capacity"],
    )
    polled = next(value for key, value in captures.items() if key.startswith("poll"))
    same(telemetry.poll_capacity(found), polled["body"]["capacity"])


def test_a_drained_node_has_no_free_slot_anywhere() -> None:
    found = telemetry.load_telemetry(
        a_node(max_concurrent_jobs=4, max_concurrent_llm_jobs=4, generic_jobs_enabled=True),
        Counters(lambda: NOW),
        draining=True,
    )
    assert found["free_slots"] == 0
    assert found["drain_mode"] is True
    classes = found["execution_class_capacity"]
    assert [classes[name]["free_slots"] for name in classes] == [0, 0, 0]
    assert classes["chat"]["max_concurrency"] == 4


def test_capabilities_are_signed_over_the_exact_bytes() -> None:
    vector = VECTORS["capability_signature"]
    facts = vector["snapshot_without_id"]
    assert js_values.compact_json(facts) == vector["snapshot_id_input_json"]
    assert capabilities.snapshot_id(facts) == vector["expected_snapshot_id"]
    snapshot = vector["expected_payload"]["private_catalog_entry"]["snapshot"]
    unsigned = capabilities.unsigned_payload(facts, snapshot["diagnostics"])
    assert js_values.compact_json(unsigned) == vector["unsigned_json"]
    signed = capabilities.signed_payload(unsigned, vector["runtime_token"], NOW)
    assert signed["signature"]["value"] == vector["expected_signature_value"]
    same(signed, vector["expected_payload"])


def test_a_captured_heartbeat_verifies() -> None:
    captured = VECTORS["wire_captures_0_1_79"]["heartbeat_full"]
    block = captured["body"]["capabilities"]
    token = captured["headers"]["authorization"].removeprefix("Bearer ")
    unsigned = {key: value for key, value in block.items() if key != "signature"}
    signed = capabilities.signed_payload(unsigned, token, NOW)
    assert signed["signature"]["value"] == block["signature"]["value"]
    entry = block["private_catalog_entry"]["snapshot"]
    facts = {key: entry[key] for key in list(entry)[:11]}
    again = capabilities.unsigned_payload(facts, capabilities.missing_parts(facts))
    assert js_values.compact_json(again) == js_values.compact_json(unsigned)


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        catalog.catalog_fingerprint([{"name": json.loads('"\\ud800"')}])

"""Every recorded job scenario before a real HTTP gateway: order of calls, bodies, failures."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from skulkd.swarm.errors import GatewayError
from skulkd.swarm.generic_contract import (
    UnsafePath,
    is_known_type,
    is_registered_type,
    safe_relative_path,
)
from skulkd.swarm.generic_jobs import ECHO, GenericJobs
from skulkd.swarm.telemetry import Counters
from tests.swarm.loopback_gateway import Fault
from tests.swarm.rig import TestClock, config, rig
from tests.swarm.vectors import VECTORS, case_id, cases, same

NOT_RETRIED = "result_post_rejected_throws_and_is_not_retried"


@pytest.mark.parametrize("case", cases("job_scenarios"), ids=case_id)
async def test_a_job_makes_the_recorded_calls(case: dict[str, Any], tmp_path: Path) -> None:
    given, expected = case["input"], case["expected"]
    drain = given["config_overrides"].get("drainMode", False)
    async with rig(tmp_path, drain_mode=drain) as node:
        node.executor.chunks = given["executor_chunks"]
        node.executor.throws = given["executor_throws"]
        for name, failure in given["gateway_failures"].items():
            node.gateway.always[name] = Fault(failure["status"], failure.get("body"))
        node.gateway.jobs.append(given["poll_response"])
        polled = await node.session.poll()
        thrown = None
        if polled is not None:
            try:
                await node.session.jobs.serve(*polled)
            except GatewayError as error:
                thrown = str(error)
        assert thrown == expected["thrown"]
        calls = node.gateway.calls
        if case["id"] == NOT_RETRIED:
            # The reference loses the result here; ours tries thrice more and keeps it.
            assert [call.name for call in calls[4:]] == ["result"] * 3
            assert node.sleeps == [0.25, 1.0, 2.5]
            assert len(node.deps.records.owed()) == 1
            calls = calls[:4]
        assert [call.name for call in calls] == expected["call_order"]
        _check_requests(expected["requests"], calls, node.executor.bodies)
        same(list(node.deps.counters.failures), expected["recent_failures"])
        assert node.deps.counters.active_llm == expected["active_jobs_after"]
        secrets = {call.headers.get("authorization") for call in calls if call.path}
        assert secrets == {"Bearer msn_v"}


def _check_requests(expected: list[Any], calls: list[Any], ollama_bodies: list[Any]) -> None:
    posted = [call for call in calls if call.path and call.name != "poll"]
    bodies = iter(ollama_bodies)
    sent = iter(posted)
    for request in expected:
        if "ollama" in request["url"]:
            same(dict(next(bodies)), request["body"])
            continue
        call = next(sent)
        assert call.path == request["url"].removeprefix("http://gw")
        assert call.status == request["status"]
        same(call.body, request["body"])
    assert next(sent, None) is None


@pytest.mark.parametrize("case", cases("generic_job_scenarios"), ids=case_id)
async def test_a_generic_job_has_the_recorded_result(case: dict[str, Any]) -> None:
    clocks = TestClock().clocks()
    counters = Counters(clocks.wall)
    settings = config("http://127.0.0.1", generic_jobs_enabled=True, generic_job_timeout_ms=300)
    jobs = GenericJobs(settings, frozenset({ECHO}), counters, clocks)
    found = await jobs.execute(case["input"])
    same(found, case["expected"]["result"])
    same(list(counters.failures), case["expected"]["recent_failures"])
    assert counters.active_generic == case["expected"]["active_after"]


async def test_generic_jobs_are_off_until_the_owner_enables_kinds() -> None:
    clocks = TestClock().clocks()
    envelope = VECTORS["generic_job_scenarios"][0]["input"]
    off = GenericJobs(config("http://127.0.0.1"), frozenset({ECHO}), Counters(clocks.wall), clocks)
    refused = await off.execute(envelope)
    assert refused["result"]["error"]["code"] == "feature_disabled"
    none = GenericJobs(
        config("http://127.0.0.1", generic_jobs_enabled=True),
        frozenset(),
        Counters(clocks.wall),
        clocks,
    )
    refused = await none.execute(envelope)
    assert refused["result"]["error"]["code"] == "runner_unavailable"
    assert "swarm.generic_runners" in refused["result"]["error"]["message"]


async def test_policy_and_paths_of_generic_jobs_are_checked_all_at_once() -> None:
    clocks = TestClock().clocks()
    jobs = GenericJobs(
        config("http://127.0.0.1", generic_jobs_enabled=True),
        frozenset({ECHO}),
        Counters(clocks.wall),
        clocks,
    )
    envelope = {
        "job_id": "../../x",
        "request_id": "r",
        "node_id": "shn_v",
        "job": {
            "schema_version": "1",
            "job_type": "tenant.test-echo",
            "surprise": 1,
            "inputs": [{"uri": "file:///etc/passwd"}],
            "outputs": [{"name": "o", "path": "../out"}],
            "policy": {"trust_mode": "anyone", "network": "all", "allow_raw_command": True},
        },
    }
    found = await jobs.execute(envelope)
    assert [(issue["code"], issue["path"]) for issue in found["validation_issues"]] == [
        ("unknown_field", "surprise"),
        ("invalid_schema_version", "schema_version"),
        ("invalid_trust_mode", "policy.trust_mode"),
        ("invalid_network", "policy.network"),
        ("unsafe_field", "policy.allow_raw_command"),
        ("invalid_artifact_uri", "inputs[0].uri"),
        ("unsafe_path", "outputs[0].path"),
    ]


async def test_words_of_another_type_are_named_and_nothing_stays_counted() -> None:
    clocks = TestClock().clocks()
    counters = Counters(clocks.wall)
    settings = config("http://127.0.0.1", generic_jobs_enabled=True)
    jobs = GenericJobs(settings, frozenset({ECHO}), counters, clocks)
    good = VECTORS["generic_job_scenarios"][0]["input"]
    policy = {"trust_mode": ["owner-local"], "network": {}}
    found = await jobs.execute({**good, "job": {**good["job"], "policy": policy}})
    assert [(issue["code"], issue["path"]) for issue in found["validation_issues"]] == [
        ("invalid_trust_mode", "policy.trust_mode"),
        ("invalid_network", "policy.network"),
    ]
    assert counters.active_generic == 0


async def test_details_of_generic_jobs() -> None:
    """Optional parts of the policy are checked; drives are no relative paths."""
    clocks = TestClock().clocks()
    jobs = GenericJobs(
        config("http://127.0.0.1", generic_jobs_enabled=True),
        frozenset({ECHO}),
        Counters(clocks.wall),
        clocks,
    )
    good = VECTORS["generic_job_scenarios"][0]["input"]
    policy = {
        "trust_mode": "owner-local",
        "allowed_images": "all",
        "allowed_package_publishers": [""],
        "max_artifact_bytes": "1",
    }
    bad = {**good, "job": {**good["job"], "policy": policy, "outputs": [{"path": "C:/x"}]}}
    found = await jobs.execute(bad)
    assert [(issue["code"], issue["path"]) for issue in found["validation_issues"]] == [
        ("invalid_type", "policy.allowed_images"),
        ("invalid_type", "policy.allowed_package_publishers"),
        ("invalid_limit", "policy.max_artifact_bytes"),
        ("unsafe_path", "outputs[0].path"),
    ]
    assert found["validation_issues"][-1]["message"] == "absolute_path_not_allowed"


async def test_a_generic_job_that_waits_for_its_turn_is_cancelled() -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def sleep(_seconds: float) -> None:
        began.set()
        await go_on.wait()

    clocks = TestClock().clocks()
    counters = Counters(clocks.wall)
    settings = config("http://127.0.0.1", generic_jobs_enabled=True)
    jobs = GenericJobs(settings, frozenset({ECHO}), counters, clocks, sleep=sleep)
    good = VECTORS["generic_job_scenarios"][0]["input"]
    slow = {**good, "job": {**good["job"], "args": {"delay_ms": 5000}, "limits": {}}}
    running = asyncio.create_task(jobs.execute(slow))
    await asyncio.wait_for(began.wait(), 60)
    waiting = asyncio.create_task(jobs.execute({**slow, "job_id": "gj-2"}))
    async with asyncio.timeout(60):
        while not counters.queued_generic:  # noqa: ASYNC110 - a counter, no event
            await asyncio.sleep(0)
    assert jobs.cancel("gj-2")
    assert (await waiting)["result"]["error"]["code"] == "cancelled"
    assert counters.queued_generic == 0
    go_on.set()
    assert (await running)["status"] == "succeeded"
    again = await jobs.execute({**slow, "job_id": "gj-3"})
    assert again["status"] == "succeeded"


async def test_a_generic_job_is_cancelled() -> None:
    clocks = TestClock().clocks()
    counters = Counters(clocks.wall)
    began = asyncio.Event()

    async def sleep(_seconds: float) -> None:
        began.set()
        await asyncio.Event().wait()

    settings = config("http://127.0.0.1", generic_jobs_enabled=True)
    jobs = GenericJobs(settings, frozenset({ECHO}), counters, clocks, sleep=sleep)
    good = VECTORS["generic_job_scenarios"][0]["input"]
    slow = {**good, "job": {**good["job"], "args": {"delay_ms": 5000}, "limits": {}}}
    running = asyncio.create_task(jobs.execute(slow))
    await asyncio.wait_for(began.wait(), 60)
    assert not jobs.cancel("somebody-else")
    assert jobs.cancel("gj-1")
    found = await running
    assert (found["status"], found["result"]["status"]) == ("cancelled", "cancelled")
    assert found["result"]["error"]["code"] == "cancelled"
    assert found["events"][-1]["type"] == "cancelled"
    assert not jobs.cancel("gj-1")
    assert counters.active_generic == 0


@pytest.mark.parametrize("path", ["C:/x", "c:x", "C:"])
def test_drives_are_no_relative_paths(path: str) -> None:
    with pytest.raises(UnsafePath, match="absolute_path_not_allowed"):
        safe_relative_path(path)


@pytest.mark.parametrize("case", cases("safe_relative_path"), ids=str)
def test_output_paths(case: dict[str, Any]) -> None:
    try:
        found = {"ok": True, "normalized": safe_relative_path(case["input"])}
    except UnsafePath as error:
        found = {"ok": False, "reason": str(error)}
    assert found == case["expected"]


@pytest.mark.parametrize("case", cases("job_type_classification"), ids=str)
def test_types_of_generic_jobs(case: dict[str, Any]) -> None:
    assert is_known_type(case["input"]) == case["known"]
    assert is_registered_type(case["input"]) == case["registered"]

"""A gateway that sends what it should not: nothing of it ends or wedges the node."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from skulkd.swarm.errors import GatewayError
from skulkd.swarm.gateway import parse_response
from skulkd.swarm.job_checks import MAX_MESSAGES, job_flaw, polled_job
from skulkd.swarm.job_records import JobRecords
from skulkd.swarm.js_values import is_header_token, is_plain_id
from skulkd.swarm.service import restart_on_failure
from tests.swarm.loopback_gateway import Fault
from tests.swarm.rig import job, rig, running

NESTED = b"[" * 200_000


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (NESTED, "nested deeper"),
        (b'{"job":' + b"[" * 150 + b"]" * 150 + b"}", "nested deeper"),
        (b"{nonsense", "not valid JSON"),
        (b"", "not valid JSON"),
        (b'{"job":NaN}', "not valid JSON"),
        (b'{"n":' + b"9" * 5000 + b"}", "not valid JSON"),
    ],
    ids=["200000 brackets", "150 levels", "no JSON", "empty", "NaN", "a huge number"],
)
def test_what_is_no_sound_json_is_a_gateway_error(raw: bytes, why: str) -> None:
    with pytest.raises(GatewayError, match=why):
        parse_response(raw, 200)


def test_lone_surrogates_are_replaced_and_pairs_are_kept() -> None:
    raw = b'{"a\\udc00":["\\ud83d\\ude00","x\\ud800y"]}'
    assert parse_response(raw, 200) == {"a\ufffd": ["\U0001f600", "x\ufffdy"]}


@pytest.mark.parametrize("text", ["job-1", "job/1 a", "shn_0123", "a" * 256, "7:x@y+z=~."])
def test_plain_ids(text: str) -> None:
    assert is_plain_id(text)


@pytest.mark.parametrize(
    "value", ["", "..", ".", "/x", "a" * 257, "a\nb", "a\x00", "\u00e9", "a\\b", "a?b", 7, None]
)
def test_ids_that_are_not_plain(value: object) -> None:
    assert not is_plain_id(value)
    with pytest.raises(GatewayError, match="job_id"):
        polled_job({"job": {**job(), "job_id": value}})


@pytest.mark.parametrize("value", ["a\r\nb", "a b", "", "\u00e9", "x" * 4097, None, 5])
def test_tokens_that_no_header_can_carry(value: object) -> None:
    assert not is_header_token(value)


def test_a_job_that_is_no_object_is_a_gateway_error() -> None:
    with pytest.raises(GatewayError, match="list, not an object"):
        polled_job({"job": [1]})
    assert polled_job({"job": None}) is None
    assert polled_job({}) is None


def test_a_key_that_no_header_can_carry_is_no_key() -> None:
    polled = polled_job({"job": job(), "attached_mswarm_api_key": "a\nb"})
    assert polled is not None
    assert polled[1] is None


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"request_id": None}, "request_id"),
        ({"agent_slug": "x" * 513}, "agent_slug"),
        ({"model": ["m"]}, "model"),
        ({"source_agent_slug": "a\x1b[2J"}, "source_agent_slug"),
        ({"openai_request": "hi"}, "openai_request"),
        ({"openai_request": {"model": {"a": 1}}}, "openai_request.model"),
        ({"openai_request": {"messages": [{}] * (MAX_MESSAGES + 1)}}, "openai_request.messages"),
        ({"openai_request": {"tools": [{}] * 513}}, "openai_request.tools"),
    ],
)
def test_jobs_that_cannot_be_run_name_the_field(changes: dict[str, Any], names: str) -> None:
    flaw = job_flaw({**job(), **changes})
    assert flaw is not None
    assert flaw.startswith(names)
    assert job_flaw(job()) is None


@pytest.mark.parametrize(
    "raw", [NESTED, b'{"job":{"job_id":"..","request_id":"r"}}', b"7" * 9_000_000]
)
async def test_a_bad_poll_is_backed_off_from_and_work_goes_on(tmp_path: Path, raw: bytes) -> None:
    async with rig(tmp_path) as node:
        node.gateway.faults["poll"].extend([Fault(200, raw=raw), Fault(200, raw=raw)])
        node.gateway.hold_polls = True
        await node.gateway.offer(job())
        async with running(node.session):
            await node.gateway.until(lambda: "result" in node.gateway.names())
            assert node.gateway.bodies("result")[0]["status"] == "success"
        # A heartbeat that is taken in between starts the pauses over.
        assert len([pause for pause in node.sleeps if pause in (1.0, 2.0)]) == 2


async def test_bad_answers_to_heartbeats_are_told(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        node.gateway.always["heartbeat"] = Fault(200, raw=NESTED)
        node.gateway.hold_polls = True
        async with running(node.session):
            await node.gateway.until(lambda: node.session.status.heartbeat_error is not None)
            assert "nested deeper" in str(node.session.status.heartbeat_error)
            await node.gateway.until(lambda: "poll" in node.gateway.names())


async def test_an_error_that_nobody_expected_is_backed_off_from_too(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        node.gateway.hold_polls = True
        tokens = iter(["good", "good"])  # a signature and a header: one heartbeat

        def token() -> str:
            return next(tokens)  # StopIteration afterwards

        node.client.token = token
        session = node.another()
        async with running(session):
            await node.gateway.until(lambda: session.status.poll_error is not None)
            assert session.poll_state() == "backing off"
            assert "the poll failed: " in str(session.status.poll_error)


async def test_a_request_id_of_megabytes_is_refused_and_not_kept(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        node.gateway.hold_polls = True
        await node.gateway.offer(job("big", request_id="r" * 2_000_000))
        async with running(node.session):
            await node.gateway.until(lambda: "result" in node.gateway.names())
        result = node.gateway.bodies("result")[0]
        assert (result["job_id"], result["request_id"]) == ("big", None)
        assert result["error"]["code"] == "validation_failed"
        assert result["pre_start_failure"] is True
        assert sum(file.stat().st_size for file in (tmp_path / "jobs").iterdir()) < 10_000


async def test_too_many_messages_are_refused_before_they_start(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        messages = [{"role": "user", "content": "x"}] * 100_000
        asked = {"model": "pub-model", "messages": messages}
        await node.gateway.offer(job(openai_request=asked))
        polled = await node.session.poll()
        assert polled is not None
        await node.session.jobs.serve(*polled)
        result = node.gateway.bodies("result")[0]
        assert result["pre_start_failure"] is True
        assert "100000 entries" in result["error"]["message"]
        assert "RUN" not in node.gateway.names()


async def test_a_job_with_half_a_surrogate_pair_is_answered(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        asked = {"model": "pub-model", "messages": [{"role": "user", "content": "x\ud800y"}]}
        raw = json.dumps({"job": job(openai_request=asked)}).encode()
        node.gateway.faults["poll"].append(Fault(200, raw=raw))
        node.gateway.hold_polls = True
        async with running(node.session):
            await node.gateway.until(lambda: "result" in node.gateway.names())
        assert node.gateway.bodies("result")[0]["status"] == "success"
        assert node.executor.works[0].request["messages"][0]["content"] == "x\ufffdy"
        # What a model says may hold one as well.
        node.executor.throws = "bad \udfff"
        await node.session.jobs.serve(job("job-2"), None)
        assert node.gateway.bodies("result")[1]["error"]["message"] == "bad \ufffd"


async def test_work_that_fails_is_restarted_with_growing_pauses() -> None:
    clock, runs, pauses, errors = [0.0], [0], list[float](), list[str]()
    over = asyncio.Event()

    async def work() -> None:
        runs[0] += 1
        if runs[0] == 4:
            clock[0] += 61  # ran for a minute before it failed
        if runs[0] == 6:
            over.set()
            await asyncio.Event().wait()
        raise RuntimeError(f"run {runs[0]}")

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    task = asyncio.create_task(
        restart_on_failure(work, lambda error: errors.append(str(error)), sleep, lambda: clock[0])
    )
    await asyncio.wait_for(over.wait(), 60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert pauses == [1.0, 2.0, 4.0, 1.0, 2.0]
    assert errors == [f"run {number}" for number in range(1, 6)]


async def test_refused_for_good_is_given_up_and_remembered(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        for number, status in enumerate((404, 410, 422)):
            node.gateway.faults["result"].append(Fault(status, {"error": "no"}))
            await node.session.jobs.serve(job(f"job-{number}"), None)
        assert node.gateway.names().count("result") == 3
        assert node.deps.records.owed() == []
        kept = JobRecords(node.deps.records.directory).refusals()
        assert [refusal.status for refusal in kept.values()] == [404, 410, 422]
        assert "request_failed:404" in kept["job-0"].message
        assert await node.session.jobs.serve(job("job-0"), None) is None  # it ran, and runs once

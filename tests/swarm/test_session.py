"""A node at work before a gateway that fails, repeats, hangs and forgets. No clock decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from skulkd.swarm.claims import Claims
from skulkd.swarm.errors import GatewayError
from skulkd.swarm.event_forwarder import EventForwarder
from skulkd.swarm.job_records import JobRecords
from skulkd.swarm.session import WAIT_MS
from tests.peer_mesh import peer_mesh
from tests.swarm.loopback_gateway import Fault
from tests.swarm.rig import Rig, job, rig, running
from tests.swarm.vectors import VECTORS, same

STREAM = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}


def _nothing_owed(node: Rig) -> Callable[[], bool]:
    """Heartbeats until every result is taken."""

    def look() -> bool:
        node.session.notify()
        return not node.deps.records.owed()

    return look


def count(names: list[str], name: str) -> int:
    return names.count(name)


async def test_a_heartbeat_has_the_recorded_shape(tmp_path: Path) -> None:
    async with rig(
        tmp_path, max_concurrent_jobs=3, max_concurrent_llm_jobs=2, hardware_telemetry_enabled=True
    ) as node:
        report = await node.session.heartbeat()
        body = node.gateway.bodies("heartbeat")[0]
        recorded = VECTORS["wire_captures_0_1_79"]["heartbeat_full"]["body"]
        assert list(body) == list(recorded)
        for key in ("runtime", "discovery", "ollama", "health", "local_agent_catalog"):
            assert list(body[key]) == list(recorded[key]), key
        fingerprint = body["capacity"]["catalog_fingerprint"]
        assert fingerprint == body["local_agent_catalog"]["revision"]
        same(body["capacity"], {**recorded["capacity"], "catalog_fingerprint": fingerprint})
        assert body["hardware_pressure"]["cpu"] == {"core_count": 2, "load_1m_ratio": 0.925}
        assert list(body["capabilities"]) == list(recorded["capabilities"])
        assert all("base_url" not in model for model in body["models"])
        assert list(report["capacity"])[-1] == "hardware_pressure"


async def test_models_that_cannot_be_listed_degrade_the_heartbeat(tmp_path: Path) -> None:
    def broken() -> list[Any]:
        raise OSError("no list today")

    async with rig(tmp_path, agents=broken) as node:
        await node.session.heartbeat()
        body = node.gateway.bodies("heartbeat")[0]
        assert body["status"] == "degraded"
        assert body["discovery"] == {"source": "mcoda", "mcoda_status": "error"}
        assert body["models"] == []
        assert body["health"]["recent_failure_count"] == 1
        assert body["health"]["last_success_at"] is None


async def test_a_poll_has_the_recorded_shape(tmp_path: Path) -> None:
    async with rig(tmp_path, max_concurrent_jobs=3) as node:
        assert await node.session.poll() is None
        recorded = VECTORS["wire_captures_0_1_79"]["poll"]["body"]
        assert recorded["wait_ms"] == WAIT_MS == 25_000
        same(node.gateway.bodies("poll")[0], {**recorded, "node_id": "shn_v"})


async def test_the_first_poll_waits_for_the_first_heartbeat(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        node.gateway.hold_polls = True
        node.gateway.faults["heartbeat"].append(Fault(500))
        async with running(node.session):
            await node.gateway.until(lambda: "poll" in node.gateway.names())
        assert node.gateway.names()[:2] == ["heartbeat", "poll"]


async def test_polls_back_off_and_a_heartbeat_ends_the_wait(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        node.gateway.always["poll"] = Fault(500, {"error": "later"})
        asked: list[float] = []
        done = asyncio.Event()

        async def sleep(seconds: float) -> None:
            asked.append(seconds)
            if seconds == 60.0:
                done.set()
            if seconds in (30, 60.0):  # heartbeats of this test come only when asked for
                await asyncio.Event().wait()

        session = node.another(sleep=sleep)
        async with running(session):
            await asyncio.wait_for(done.wait(), 300)
            assert [s for s in asked if s != 30] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]
            assert session.poll_state() == "backing off"
            del node.gateway.always["poll"]
            node.gateway.hold_polls = True
            polls = count(node.gateway.names(), "poll")
            session.notify()
            await node.gateway.until(lambda: count(node.gateway.names(), "poll") > polls)
            assert session.poll_state() == "polling"


async def test_jobs_run_side_by_side_with_one_poll_outstanding(tmp_path: Path) -> None:
    async with rig(tmp_path, max_concurrent_jobs=3, max_concurrent_llm_jobs=3) as node:
        node.gateway.hold_polls = True
        node.executor.gate = asyncio.Event()
        for number in range(5):
            await node.gateway.offer(job(f"job-{number}"))
        async with running(node.session):
            await node.gateway.until(lambda: count(node.gateway.names(), "start") == 3)
            assert node.session.poll_state() == "busy"
            assert count(node.gateway.names(), "poll") == 3
            node.executor.gate.set()
            await node.gateway.until(lambda: count(node.gateway.names(), "result") == 5)
        assert node.gateway.most_open_polls == 1
        done = sorted(body["job_id"] for body in node.gateway.bodies("result"))
        assert done == [f"job-{number}" for number in range(5)]


async def test_410_stops_polls_until_a_heartbeat_is_taken(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        node.gateway.hold_polls = True
        node.gateway.faults["heartbeat"].append(Fault(410, {"error": "gone"}))
        pauses: list[float] = []
        slept = asyncio.Event()

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            slept.set()
            await asyncio.Event().wait()

        session = node.another(sleep=sleep)
        async with running(session):
            await asyncio.wait_for(slept.wait(), 300)
            assert session.poll_state() == "retired"
            assert pauses == [900.0]
            assert node.gateway.names() == ["heartbeat"]
            session.notify()
            await node.gateway.until(lambda: "poll" in node.gateway.names())
            assert node.gateway.names()[:3] == ["heartbeat", "heartbeat", "poll"]


async def test_a_revoked_token_is_said_and_work_goes_on_when_it_is_taken_again(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as node:
        denied = Fault(401, {"error": "msn_v is revoked"})
        node.gateway.always["heartbeat"] = node.gateway.always["poll"] = denied

        async def sleep(_seconds: float) -> None:
            await asyncio.Event().wait()

        session = node.another(sleep=sleep)
        async with running(session):
            await node.gateway.until(lambda: "poll" in node.gateway.names())
            await node.gateway.until(lambda: session.status.heartbeat_error is not None)
            assert "request_failed:401" in str(session.status.heartbeat_error)
            assert "msn_v" not in str(session.status.heartbeat_error)
            node.gateway.always.clear()
            node.gateway.hold_polls = True
            await node.gateway.offer(job())
            session.notify()
            await node.gateway.until(lambda: "result" in node.gateway.names())
            assert session.status.heartbeat_error is None


async def test_drain_stops_polls_and_is_told_at_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        node.executor.gate = asyncio.Event()
        node.gateway.hold_polls = True
        await node.gateway.offer(job())

        async def sleep(_seconds: float) -> None:
            await asyncio.Event().wait()

        session = node.another(sleep=sleep)
        async with running(session):
            await node.gateway.until(lambda: "RUN" in node.gateway.names())
            node.draining[0] = True
            session.notify()
            await node.gateway.until(lambda: count(node.gateway.names(), "heartbeat") == 2)
            told = node.gateway.bodies("heartbeat")[1]
            assert told["runtime"]["drain_mode"] is True
            assert told["capacity"]["free_slots"] == 0
            assert told["capacity"]["active_jobs"] == 1
            node.executor.gate.set()  # what runs is finished
            await node.gateway.until(lambda: "result" in node.gateway.names())
            assert session.poll_state() == "draining"
            assert count(node.gateway.names(), "poll") == 1
            node.draining[0] = False
            session.notify()
            await node.gateway.until(lambda: count(node.gateway.names(), "poll") >= 2)


async def test_a_job_leased_twice_runs_once(tmp_path: Path) -> None:
    async with rig(tmp_path, max_concurrent_jobs=2, max_concurrent_llm_jobs=2) as node:
        node.executor.gate = asyncio.Event()
        node.gateway.hold_polls = True
        await node.gateway.offer(job())
        await node.gateway.offer(job())
        async with running(node.session):
            await node.gateway.until(lambda: count(node.gateway.names(), "poll") >= 3)
            node.executor.gate.set()
            await node.gateway.until(lambda: "result" in node.gateway.names())
            polls = count(node.gateway.names(), "poll")
            await node.gateway.offer(job())  # and again after it was delivered
            await node.gateway.until(lambda: not node.gateway.jobs)
            await node.gateway.until(lambda: count(node.gateway.names(), "poll") > polls)
        again = node.restarted()
        assert await again.jobs.serve(job(), None) is None
        assert count(node.gateway.names(), "RUN") == 1
        assert count(node.gateway.names(), "result") == 1


async def test_two_nodes_of_a_cluster_never_run_one_job_twice(tmp_path: Path) -> None:
    peers = peer_mesh("node-a", "node-b")
    async with (
        rig(tmp_path / "a", peers=peers[0]) as first,
        rig(tmp_path / "b", peers=peers[1]) as second,
    ):
        for number in range(20):
            leased = job(f"job-{number}")
            await asyncio.gather(
                first.session.jobs.serve(leased, None), second.session.jobs.serve(leased, None)
            )
        runs = [*first.gateway.bodies("result"), *second.gateway.bodies("result")]
        assert sorted(body["job_id"] for body in runs) == sorted(f"job-{n}" for n in range(20))
        assert first.gateway.names().count("RUN") + second.gateway.names().count("RUN") == 20
        # One that was run by the other before it was started again is known, too.
        done = runs[0]["job_id"]
        assert await first.restarted().jobs.serve(job(done), None) is None


@pytest.mark.parametrize("why", ["refused before the start", "acknowledgement failed"])
async def test_a_job_that_never_began_may_come_again_here_and_elsewhere(
    tmp_path: Path, why: str
) -> None:
    peers = peer_mesh("node-a", "node-b")
    async with (
        rig(tmp_path / "a", peers=peers[0]) as first,
        rig(tmp_path / "b", peers=peers[1]) as second,
    ):
        leased = job()
        if why == "acknowledgement failed":
            first.gateway.faults["start"].append(Fault(503))
            await first.session.jobs.serve(leased, None)
        else:
            await first.session.jobs.serve({**leased, "source_agent_slug": "nobody"}, None)
        assert first.gateway.bodies("result")[0]["pre_start_failure"] is True
        assert first.deps.records.stage_of("job-1") is None
        await second.session.jobs.serve(leased, None)
        assert second.gateway.bodies("result")[0]["status"] == "success"
        # The same while the failure is not delivered yet.
        for job_id, node in (("job-2", first), ("job-3", second)):
            first.gateway.faults["start"].append(Fault(503))
            first.gateway.faults["result"].extend([Fault(500)] * 4)
            with pytest.raises(GatewayError):
                await first.session.jobs.serve(job(job_id), None)
            assert first.deps.records.owed() == [job_id]
            await node.session.jobs.serve(job(job_id), None)
            assert node.gateway.bodies("result")[-1]["status"] == "success"


async def test_polls_that_bring_nothing_at_once_are_not_repeated_at_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        pauses: list[float] = []

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if seconds != 0.5:
                await asyncio.Event().wait()
            node.clock.seconds += seconds

        session = node.another(sleep=sleep)
        async with running(session):
            await node.gateway.until(lambda: count(node.gateway.names(), "poll") >= 20)
            elapsed = node.clock.seconds - 1000.0
            assert count(node.gateway.names(), "poll") <= 2 * elapsed + 2
            # A job that is always refused before it starts makes no busy loop either.
            bad = job("again", source_agent_slug="nobody")
            node.gateway.jobs.extend([{"job": bad}] * 20)
            before = (count(node.gateway.names(), "poll"), node.clock.seconds)
            await node.gateway.until(lambda: not node.gateway.jobs)
            polls = count(node.gateway.names(), "poll") - before[0]
            assert polls <= 2 * (node.clock.seconds - before[1]) + 2
        assert count(node.gateway.names(), "result") >= 19


async def test_a_drain_ends_a_poll_that_is_held(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        node.gateway.hold_polls = True
        node.gateway.hold_s = 3600.0

        async def sleep(_seconds: float) -> None:
            await asyncio.Event().wait()

        session = node.another(sleep=sleep)
        async with running(session):
            await node.gateway.until(lambda: node.gateway.open_polls == 1)
            node.draining[0] = True
            session.notify()
            await node.gateway.until(lambda: node.gateway.open_polls == 0)
            assert session.poll_state() == "draining"
            assert session.status.poll_error is None  # ended, not timed out


async def test_stop_gives_jobs_their_grace_and_answers_for_the_rest(tmp_path: Path) -> None:
    async with rig(tmp_path, max_concurrent_jobs=2, max_concurrent_llm_jobs=2) as node:
        node.gateway.hold_polls = True
        node.gateway.hold_s = 3600.0
        node.executor.gate = asyncio.Event()
        await node.gateway.offer(job())
        async with running(node.session):
            await node.gateway.until(lambda: "RUN" in node.gateway.names())
            stopping = asyncio.create_task(node.session.stop(60.0, 60.0))
            await node.gateway.until(lambda: node.gateway.open_polls == 0)
            node.executor.gate.set()
            await stopping
            assert node.gateway.bodies("result")[0]["status"] == "success"
        again = node.restarted()
        node.executor.gate = asyncio.Event()
        await node.gateway.offer(job("job-2"))
        async with running(again):
            await node.gateway.until(lambda: count(node.gateway.names(), "RUN") == 2)
            await again.stop(0.0, 60.0)
        last = node.gateway.bodies("result")[-1]
        assert (last["job_id"], last["status"]) == ("job-2", "failed")
        assert last["error"]["message"] == "the node stopped while the job ran"


async def test_a_job_that_runs_is_not_taken_for_one_of_an_earlier_process(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        node.executor.gate = asyncio.Event()
        serving = asyncio.create_task(node.session.jobs.serve(job(), None))
        await node.gateway.until(lambda: "RUN" in node.gateway.names())
        assert node.deps.records.fail_interrupted() == 0
        node.executor.gate.set()
        await serving
        assert [body["status"] for body in node.gateway.bodies("result")] == ["success"]


async def test_of_two_claims_at_once_the_smaller_id_wins(tmp_path: Path) -> None:
    one, two, three = peer_mesh("node-1", "node-2", "node-3")
    nodes = [Claims(peer, JobRecords(tmp_path / peer.node_id)) for peer in (one, two, three)]
    for number in range(10):
        granted = await asyncio.gather(*(node.claim(f"job-{number}") for node in nodes))
        assert granted == [True, False, False]
    assert not await nodes[2].claim("job-0")
    two.leave()
    assert await nodes[2].claim("job-x")  # a node that is gone cannot object


async def test_a_result_survives_a_kill_between_run_and_delivery(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        node.gateway.always["result"] = Fault(hang=True)
        serving = asyncio.create_task(node.session.jobs.serve(job(), None))
        await node.gateway.until(lambda: "result" in node.gateway.names())
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        del node.gateway.always["result"]
        again = node.restarted()
        node.gateway.hold_polls = True
        async with running(again):
            await node.gateway.until(lambda: count(node.gateway.names(), "result") == 2)
            # The gateway has it a moment before this node knows that it has.
            await node.gateway.until(lambda: not JobRecords(node.deps.records.directory).owed())
        first, second = node.gateway.bodies("result")
        assert first == second
        assert count(node.gateway.names(), "RUN") == 1


async def test_a_job_cut_off_while_it_ran_is_answered_for(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        node.executor.gate = asyncio.Event()
        serving = asyncio.create_task(node.session.jobs.serve(job(), "msw_attached"))
        await node.gateway.until(lambda: "start" in node.gateway.names())
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        again = node.restarted()
        node.gateway.hold_polls = True
        async with running(again):
            await node.gateway.until(lambda: "result" in node.gateway.names())
        result = node.gateway.bodies("result")[0]
        assert result["status"] == "failed"
        assert result["error"]["code"] == "upstream_error"
        assert "pre_start_failure" not in result
        kept = "".join(file.read_text() for file in (tmp_path / "jobs").iterdir())
        assert "msw_attached" not in kept


async def test_results_are_tried_four_times_and_then_with_the_next_heartbeat(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as node:
        faults = [Fault(500), Fault(401), Fault(drop=True), Fault(503), Fault(429)]
        node.gateway.faults["result"].extend(faults)
        node.gateway.hold_polls = True
        await node.gateway.offer(job())
        async with running(node.session):
            await node.gateway.until(lambda: count(node.gateway.names(), "result") >= 4)
            node.session.notify()
            await node.gateway.until(lambda: count(node.gateway.names(), "result") >= 5)
            await node.gateway.until(_nothing_owed(node))
        assert node.sleeps[:1] and {0.25, 1.0, 2.5} <= set(node.sleeps)
        assert node.gateway.calls[-1].status == 200
        assert all(
            body == node.gateway.bodies("result")[0] for body in node.gateway.bodies("result")
        )


async def test_a_refused_batch_ends_forwarding_and_the_rest_is_in_the_result(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as node:
        node.executor.chunks = 21
        node.gateway.faults["events"].extend([Fault(200, {}), Fault(404)])
        await node.session.jobs.serve(job(openai_request=STREAM), None)
        assert count(node.gateway.names(), "events") == 2
        left = node.gateway.bodies("result")[0]["stream_events"]
        texts = [event["choices"][0]["delta"]["content"] for event in left]
        assert texts == [f"t{number}" for number in range(8, 21)]


async def test_pieces_that_come_slowly_are_sent_without_waiting_for_eight() -> None:
    batches: list[int] = []
    sent = asyncio.Event()

    async def send(batch: list[dict[str, Any]]) -> None:
        batches.append(len(batch))
        sent.set()

    forwarder = EventForwarder(send, flush_s=0.0)
    forwarder.add({"n": 1})
    await asyncio.wait_for(sent.wait(), 300)
    forwarder.add({"n": 2})
    assert await forwarder.finish() == []
    assert batches == [1, 1]


async def test_a_job_that_takes_too_long_is_a_timeout(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        node.executor.gate = asyncio.Event()
        await node.session.jobs.serve(job(policy={"max_runtime_ms": 20}), None)
        result = node.gateway.bodies("result")[0]
        assert result["error"]["code"] == "timeout"
        assert "pre_start_failure" not in result


async def test_a_gateway_that_hangs_holds_nothing_up(tmp_path: Path) -> None:
    async with rig(tmp_path, request_timeout_ms=20) as node:
        node.gateway.faults["start"].append(Fault(hang=True))
        await node.session.jobs.serve(job(), None)
        result = node.gateway.bodies("result")[0]
        assert result["pre_start_failure"] is True
        assert result["error"]["code"] == "upstream_error"
        assert "RUN" not in node.gateway.names()


async def test_a_wall_clock_that_jumps_changes_no_interval(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        node.executor.gate = asyncio.Event()
        serving = asyncio.create_task(node.session.jobs.serve(job(), None))
        await node.gateway.until(lambda: "RUN" in node.gateway.names())
        node.clock.jump(timedelta(days=-400))
        node.clock.seconds += 1.5
        node.executor.gate.set()
        await serving
        assert node.gateway.bodies("result")[0]["timing"] == {"local_latency_ms": 1500}
        node.clock.jump(timedelta(days=4000))
        assert JobRecords(node.deps.records.directory).stage_of("job-1") == "delivered"


async def test_limits_of_policy_and_request_reach_the_model(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        asked = {**STREAM, "stream": False, "top_p": 0.5, "stop": ["x"], "max_tokens": 900}
        await node.session.jobs.serve(
            job(openai_request=asked, policy={"max_output_tokens": 64.9}), None
        )
        work = node.executor.works[0]
        assert work.model == "Qwen/Qwen3-8B"
        assert work.request == {**asked, "max_tokens": 64}

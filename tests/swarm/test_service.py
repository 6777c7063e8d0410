"""Enrolment: setup, enrol, pause, leave, and what lies on disk and in logs afterwards."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from skulkd.swarm.active_jobs import GatewayDeps
from skulkd.swarm.claims import Claims
from skulkd.swarm.errors import Busy, ConfigError, GatewayError, NotEnrolled
from skulkd.swarm.gateway_urls import check_gateway_url
from skulkd.swarm.job_records import JobRecords
from skulkd.swarm.node_config import node_config, setup_config
from skulkd.swarm.node_files import NodeFiles
from skulkd.swarm.service import SwarmService
from skulkd.swarm.telemetry import Counters, Machine
from tests.peer_mesh import peer_mesh
from tests.swarm.loopback_gateway import Fault, LoopbackGateway, loopback_gateway
from tests.swarm.rig import AGENTS, ScriptedExecutor, TestClock, job, probe
from tests.swarm.vectors import VECTORS, same

CAPTURES = VECTORS["wire_captures_0_1_79"]
OWNER_KEY = "msw_owner_key"
RUNTIME_TOKEN = "msn_fake_token"


async def _never(_seconds: float) -> None:
    await asyncio.Event().wait()


async def _turn(_seconds: float) -> None:
    """Short, but long enough for a test to look."""
    await asyncio.sleep(0.02)


def a_service(
    home: Path,
    gateway: LoopbackGateway,
    environ: Mapping[str, str] | None = None,
    sleep: Callable[[float], Awaitable[None]] = _never,
) -> SwarmService:
    executor = ScriptedExecutor(gateway)
    environ = environ or {}
    files = NodeFiles.find(home, environ)
    clocks = TestClock().clocks()
    records = JobRecords(files.jobs_dir)
    deps = GatewayDeps(
        version="0.1.79",
        hostname="My Box",
        environ=environ,
        agents=lambda: AGENTS,
        executor=executor,
        draining=lambda: False,
        probe=lambda _config: probe(),
        machine=lambda: Machine(2, 0, 2**34, 2**33),
        records=records,
        claims=Claims(peer_mesh("node-1")[0], records),
        counters=Counters(clocks.wall),
        clocks=clocks,
        sleep=sleep,
    )
    return SwarmService(files, deps)


@asynccontextmanager
async def at_work(service: SwarmService) -> AsyncIterator[None]:
    task = asyncio.create_task(service.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def gateway() -> AsyncIterator[LoopbackGateway]:
    async with loopback_gateway() as found:
        found.hold_polls = True
        found.answers["bootstrap"] = CAPTURES["bootstrap"]["response"]
        found.answers["enroll"] = CAPTURES["enroll"]["response"]
        yield found


async def test_setup_makes_the_recorded_call_and_one_heartbeat(
    gateway: LoopbackGateway, tmp_path: Path
) -> None:
    service = a_service(tmp_path / "swarm", gateway)
    options = {
        "gateway": f"{gateway.base_url}/",
        "max-concurrent-jobs": 3,
        "max-concurrent-llm-jobs": "2",
        "enable-hardware-telemetry": True,
    }
    report = await service.setup(OWNER_KEY, options)
    assert gateway.names() == ["bootstrap", "heartbeat"]
    call = gateway.calls[0]
    assert call.path == CAPTURES["bootstrap"]["url"]
    assert call.headers["x-api-key"] == OWNER_KEY
    assert "authorization" not in call.headers
    fingerprint = call.body["machine_fingerprint"]
    same(call.body, {**CAPTURES["bootstrap"]["body"], "machine_fingerprint": fingerprint})
    assert gateway.calls[1].headers["authorization"] == f"Bearer {RUNTIME_TOKEN}"
    assert report["status"] == "online"
    assert report["capacity"]["max_concurrency"] == 3


async def test_files_are_private_whole_and_hold_no_owner_key(
    gateway: LoopbackGateway, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "swarm"
    with caplog.at_level(logging.DEBUG):
        service = a_service(home, gateway)
        await service.setup(OWNER_KEY, {"gateway": gateway.base_url})
    modes = {file.name: file.stat().st_mode & 0o777 for file in home.iterdir() if file.is_file()}
    assert modes == {"config.json": 0o600, "node.key": 0o600, "machine.id": 0o600}
    assert home.stat().st_mode & 0o777 == 0o700
    texts = {name: (home / name).read_text() for name in modes}
    assert texts["node.key"] == f"{RUNTIME_TOKEN}\n"
    state = json.loads(texts["config.json"])
    assert list(state)[:4] == ["node_id", "server_name", "relay_mode", "machine_fingerprint"]
    assert state["heartbeat_interval_seconds"] == 2  # the gateway's word counts
    for text in (texts["config.json"], caplog.text, repr(service.status())):
        assert RUNTIME_TOKEN not in text
        assert OWNER_KEY not in text
    (home / "node.key").chmod(0o644)
    assert any("chmod 600" in problem for problem in service.status()["problems"])
    fingerprint = gateway.bodies("bootstrap")[0]["machine_fingerprint"]
    await service.setup(OWNER_KEY, {"gateway": gateway.base_url})
    assert gateway.bodies("bootstrap")[1]["machine_fingerprint"] == fingerprint


async def test_enrol_changes_a_one_time_token(gateway: LoopbackGateway, tmp_path: Path) -> None:
    service = a_service(tmp_path, gateway)
    await service.enroll("shn_enr", "mse_once", {"gateway": gateway.base_url})
    call = gateway.calls[0]
    same(call.body, CAPTURES["enroll"]["body"])
    assert call.path == CAPTURES["enroll"]["url"]
    assert not {"authorization", "x-api-key"} & set(call.headers)
    assert (tmp_path / "node.key").read_text() == "msn_enrolled\n"
    assert json.loads((tmp_path / "config.json").read_text())["config_version"] == 3


async def test_a_token_in_the_environment_enrols_by_itself(
    gateway: LoopbackGateway, tmp_path: Path
) -> None:
    environ = {
        "MSWARM_GATEWAY_BASE_URL": gateway.base_url,
        "MSWARM_SELF_HOSTED_NODE_ID": "shn_enr",
        "MSWARM_SELF_HOSTED_ENROLLMENT_TOKEN": "mse_once",
    }
    async with at_work(a_service(tmp_path, gateway, environ)):
        await gateway.until(lambda: "poll" in gateway.names())
    assert gateway.names()[:3] == ["enroll", "heartbeat", "poll"]


async def test_a_refused_setup_changes_nothing(gateway: LoopbackGateway, tmp_path: Path) -> None:
    gateway.faults["bootstrap"].append(Fault(403, {"error": f"bad key {OWNER_KEY}"}))
    gateway.answers["bootstrap"] = {"node": {"node_id": "shn_x"}, "runtime_token": " "}
    service = a_service(tmp_path, gateway)
    with pytest.raises(GatewayError, match="request_failed:403") as refused:
        await service.setup(OWNER_KEY, {"gateway": gateway.base_url})
    assert OWNER_KEY not in str(refused.value)
    with pytest.raises(GatewayError, match="without runtime_token"):
        await service.setup(OWNER_KEY, {"gateway": gateway.base_url})
    assert not (tmp_path / "config.json").exists()
    assert service.status()["configured"] is False
    with pytest.raises(NotEnrolled):
        await service.run_once()


async def test_pause_outlives_a_restart_and_resume_polls_again(
    gateway: LoopbackGateway, tmp_path: Path
) -> None:
    service = a_service(tmp_path, gateway)
    await service.setup(OWNER_KEY, {"gateway": gateway.base_url})
    await service.pause(paused=True)
    restarted = a_service(tmp_path, gateway)
    async with at_work(restarted):
        await gateway.until(lambda: restarted.status()["state"] == "paused")
        assert "poll" not in gateway.names()
        await restarted.pause(paused=False)
        await gateway.until(lambda: "poll" in gateway.names())
        assert restarted.status()["state"] == "polling"


async def test_leave_tells_the_gateway_and_forgets(
    gateway: LoopbackGateway, tmp_path: Path
) -> None:
    service = a_service(tmp_path, gateway)
    await service.setup(OWNER_KEY, {"gateway": gateway.base_url})
    report = await service.leave(force=False)
    expected = {**CAPTURES["uninstall"]["body"], "service_manager": "skulkd"}
    same(gateway.bodies("uninstall")[0], expected)
    assert report["gateway_notification"]["notified"] is True
    assert not (tmp_path / "node.key").exists()
    assert not (tmp_path / "config.json").exists()
    with pytest.raises(NotEnrolled):
        await service.leave(force=False)


async def test_leave_refuses_to_lose_work_and_force_works_without_a_gateway(
    gateway: LoopbackGateway, tmp_path: Path
) -> None:
    service = a_service(tmp_path, gateway)
    await service.setup(OWNER_KEY, {"gateway": gateway.base_url})
    gateway.always["result"] = Fault(500)
    gateway.always["uninstall"] = Fault(drop=True)
    await gateway.offer(job(node_id="shn_fake"))
    async with at_work(service):
        await gateway.until(lambda: "result" in gateway.names())
        with pytest.raises(Busy, match="1 jobs run"):
            await service.leave(force=False)
        report = await service.leave(force=True)
    assert report["gateway_notification"]["notified"] is False
    assert service.status() == {"configured": False, "problems": [], "owed_results": 0}


def test_the_environment_wins_over_the_state_file() -> None:
    state = {
        "node_id": "shn_1",
        "gateway_base_url": "https://gw.example/",
        "max_concurrent_jobs": 2,
        "job_timeout_ms": 5000,
        "drain_mode": True,
        "exposure_policy": "none",
        "model_allowlist": ["a"],
    }
    plain = node_config({}, state)
    assert plain is not None
    assert (plain.gateway_base_url, plain.max_concurrent_jobs, plain.max_concurrent_llm_jobs) == (
        "https://gw.example",
        2,
        2,
    )
    assert plain.drain_mode
    assert not plain.exposure.expose_all
    assert plain.generic_job_timeout_ms == 5000
    prefix = "MSWARM_SELF_HOSTED_"
    changed = node_config(
        {
            f"{prefix}MAX_CONCURRENT_JOBS": "4",
            f"{prefix}MAX_CONCURRENT_LLM_JOBS": "1e1",
            f"{prefix}DRAIN_MODE": "no",
            f"{prefix}LOAD_REPORTING": "0",
            f"{prefix}HARDWARE_TELEMETRY_ENABLED": "yes",
            f"{prefix}EXPOSURE_POLICY": "all",
            f"{prefix}MODEL_BLOCKLIST": "x, y",
            f"{prefix}RUNTIME_TOKEN": "msn_env",
        },
        state,
    )
    assert changed is not None
    assert (changed.max_concurrent_jobs, changed.max_concurrent_llm_jobs) == (4, 10)
    assert not changed.drain_mode
    assert (changed.load_reporting_enabled, changed.hardware_telemetry_enabled) == (False, True)
    assert changed.exposure.expose_all
    assert changed.exposure.block == ["x", "y"]
    assert "msn_env" not in repr(changed)
    quicker = node_config({f"{prefix}JOB_TIMEOUT_MS": "3000"}, state)
    assert quicker is not None
    assert (quicker.job_timeout_ms, quicker.generic_job_timeout_ms) == (3000, 3000)
    assert node_config({}, {}) is None


def test_options_of_setup_are_understood() -> None:
    options: dict[str, Any] = {
        "server-name": "Kite 1!",
        "allow": "a,b",
        "no-expose-all": True,
        "drain": True,
        "disable-load-reporting": True,
        "enable-generic-jobs": True,
        "generic-job-max-concurrency": 3,
        "job-timeout-ms": 1000,
    }
    found = setup_config(options, {"MSWARM_SELF_HOSTED_MAX_CONCURRENT_JOBS": "5"}, "host")
    assert found.server_name == "kite-1"
    assert (found.exposure.allow, found.exposure.expose_all) == (["a", "b"], False)
    assert (found.drain_mode, found.load_reporting_enabled) == (True, False)
    assert found.generic_jobs_enabled
    assert (found.max_concurrent_jobs, found.max_concurrent_llm_jobs) == (5, 5)
    assert found.generic_job_max_concurrency == 3
    assert (found.job_timeout_ms, found.generic_job_timeout_ms) == (1000, 1000)
    assert found.gateway_base_url == "https://api.mswarm.org"
    with pytest.raises(ConfigError, match="direct"):
        setup_config({"mode": "direct"}, {}, "host")


async def test_calls_about_jobs_go_where_the_gateway_wants_them(
    gateway: LoopbackGateway, tmp_path: Path
) -> None:
    gateway.answers["bootstrap"] = {
        **CAPTURES["bootstrap"]["response"],
        "relay": {
            "jobs_poll_path": "/relay/poll",
            "jobs_start_path_template": f"{gateway.base_url}/relay/{{job_id}}/start",
            "jobs_result_path_template": "https://elsewhere.example/:jobId/result",
        },
    }
    service = a_service(tmp_path, gateway)
    await service.setup(OWNER_KEY, {"gateway": gateway.base_url})
    await gateway.offer(job("j/1", node_id="shn_fake"))
    async with at_work(service):
        await gateway.until(lambda: "result" in gateway.names())
    paths = [call.path for call in gateway.calls if call.path]
    assert paths[3:6] == [
        "/relay/poll",
        "/relay/j%2F1/start",
        "/v1/swarm/self-hosted/node/jobs/j%2F1/result",  # never to another host
    ]


def test_a_token_does_not_cross_the_internet_in_the_clear() -> None:
    assert check_gateway_url("https://gw.example/") == "https://gw.example"
    assert check_gateway_url("http://127.0.0.1:8080") == "http://127.0.0.1:8080"
    with pytest.raises(ConfigError, match="use https"):
        check_gateway_url("http://gw.example")
    with pytest.raises(ConfigError, match="http or https"):
        check_gateway_url("gw.example")


@pytest.mark.parametrize(
    "url",
    [
        "http://134744072",
        "http://0x8080808/",
        "http://8.8.2056",
        "http://010.010.010.010",
        "http://[::ffff:8.8.8.8]",
        "http://\uff18.8.8.8",
        "http://gw.example",
    ],
)
def test_public_addresses_need_https_however_they_are_written(url: str) -> None:
    with pytest.raises(ConfigError, match="use https"):
        check_gateway_url(url)


@pytest.mark.parametrize(
    "url", ["http://2130706433:80", "http://127.1", "http://box", "http://[::1]"]
)
def test_own_addresses_do_not(url: str) -> None:
    assert check_gateway_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "https://user:pass@gw.example",
        "https://gw.example\\@127.0.0.1",
        "https://gw.example/a b",
        "https://gw.example/?x=1",
        "https://gw.example:99999999",
        "http://[::1",
        "ftp://gw.example",
    ],
)
def test_urls_that_are_not_plain_are_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        check_gateway_url(url)


@pytest.mark.parametrize("bad", ["msn_\r\nx-evil: 1", "msn_ with space", "msn_\u00e9"])
async def test_a_token_that_cannot_be_sent_is_refused_and_does_not_wedge_the_node(
    gateway: LoopbackGateway, tmp_path: Path, bad: str
) -> None:
    good = CAPTURES["bootstrap"]["response"]
    gateway.answers["bootstrap"] = {**good, "runtime_token": bad}
    service = a_service(tmp_path, gateway)
    with pytest.raises(GatewayError, match="runtime_token"):
        await service.setup(OWNER_KEY, {"gateway": gateway.base_url})
    assert not (tmp_path / "node.key").exists()
    with pytest.raises(ConfigError, match="apiKey"):
        await service.setup(f"{OWNER_KEY}\r\nx: y", {"gateway": gateway.base_url})
    # One that an earlier version wrote to disk.
    gateway.answers["bootstrap"] = good
    await service.setup(OWNER_KEY, {"gateway": gateway.base_url})
    (tmp_path / "node.key").write_text(f"{bad}\n", encoding="utf-8", newline="")
    restarted = a_service(tmp_path, gateway)
    async with at_work(restarted):
        await gateway.until(lambda: restarted.status()["state"] == "no token")
        assert "cannot be sent in a header" in restarted.status()["problems"][0]
        report = await restarted.leave(force=True)
    assert report["left"] is True
    assert report["gateway_notification"]["notified"] is False
    assert restarted.status()["configured"] is False


async def test_leave_by_force_works_with_files_that_cannot_be_used(
    gateway: LoopbackGateway, tmp_path: Path
) -> None:
    for text in ("{nonsense", '{"node_id":"n","gateway_base_url":"http://134744072"}'):
        (tmp_path / "config.json").write_text(text)
        service = a_service(tmp_path, gateway)
        with pytest.raises(ConfigError):
            await service.leave(force=False)
        assert (await service.leave(force=True))["left"] is True
        assert not (tmp_path / "config.json").exists()


async def test_a_session_that_fails_is_told_and_restarted(
    gateway: LoopbackGateway, tmp_path: Path
) -> None:
    service = a_service(tmp_path, gateway)
    await service.setup(OWNER_KEY, {"gateway": gateway.base_url})
    JobRecords(tmp_path / "jobs").started(job(node_id="shn_fake"))
    restarted = a_service(tmp_path, gateway, sleep=_turn)
    # A job of an earlier process has to be answered for, and the disk does not play along.
    (tmp_path / "jobs").rename(tmp_path / "away")
    (tmp_path / "jobs").write_text("not a directory")
    async with at_work(restarted):
        await gateway.until(lambda: restarted.status()["session_restarts"] >= 2)
        await gateway.until(lambda: restarted.status()["state"] == "restarting")
        status = restarted.status()
        assert any("the session failed" in problem for problem in status["problems"])
        assert status["session_error_at"]
        (tmp_path / "jobs").unlink()
        (tmp_path / "away").rename(tmp_path / "jobs")
        await gateway.until(lambda: "result" in gateway.names() and "poll" in gateway.names())
        await gateway.until(lambda: restarted.status()["state"] == "polling")
        assert restarted.status()["problems"] == []


async def test_results_refused_for_good_do_not_hold_up_leaving(
    gateway: LoopbackGateway, tmp_path: Path
) -> None:
    service = a_service(tmp_path, gateway)
    await service.setup(OWNER_KEY, {"gateway": gateway.base_url})
    gateway.always["result"] = Fault(422, {"error": "too late"})
    await gateway.offer(job(node_id="shn_fake"))
    async with at_work(service):
        await gateway.until(lambda: bool(service.status()["refused_results"]))
        status = service.status()
        assert (status["owed_results"], status["problems"]) == (0, [])
        [refused] = status["refused_results"]
        assert (refused["job_id"], refused["status"]) == ("job-1", 422)
        assert "too late" in refused["message"]
        await gateway.until(lambda: not service.running())
        assert (await service.leave(force=False))["left"] is True
    assert gateway.names().count("result") == 1


async def test_a_bad_relay_address_is_not_used(gateway: LoopbackGateway, tmp_path: Path) -> None:
    gateway.answers["bootstrap"] = {
        **CAPTURES["bootstrap"]["response"],
        "relay": {
            "jobs_poll_path": "http://127.0.0.1:99999999/poll",
            "jobs_start_path_template": "/x\r\n/:jobId",
        },
        "heartbeat_interval_seconds": 10**400,
        "config_version": 10**400,
    }
    service = a_service(tmp_path, gateway)
    await service.setup(OWNER_KEY, {"gateway": gateway.base_url})
    state = json.loads((tmp_path / "config.json").read_text())
    assert "jobs_start_path_template" not in state
    assert "config_version" not in state
    async with at_work(service):
        await gateway.until(lambda: "poll" in gateway.names())
        assert service.status()["state"] == "polling"


async def test_status_lists_only_what_is_offered(gateway: LoopbackGateway, tmp_path: Path) -> None:
    service = a_service(tmp_path, gateway)
    await service.setup(OWNER_KEY, {"gateway": gateway.base_url, "exposure-policy": "off"})
    assert service.status()["models"] == []
    assert service.status()["expose_all_models"] is False
    offered = gateway.bodies("heartbeat")[0]["models"]
    assert {model["exposed"] for model in offered} == {False}


def test_a_state_file_that_is_no_state_is_named(gateway: LoopbackGateway, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{nonsense")
    status = a_service(tmp_path, gateway).status()
    assert status["configured"] is False
    assert "config.json cannot be read" in status["problems"][0]

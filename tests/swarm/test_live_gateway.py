"""A real daemon with a real model before a gateway: jobs, drain, kills, secrets."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.cluster_live.ptrace import main_thread_stopped
from tests.daemon_process import DaemonProcess, spawn_daemon, wait_until
from tests.inference.served import Served, serve
from tests.swarm.gateway_thread import GatewayThread, gateway_thread
from tests.swarm.loopback_gateway import Fault

DEADLINE_S = 300.0
NODE = "shn_live"
TOKEN = "msn_live_token_0123456789"
OWNER_KEY = "msw_owner_key_0123456789"


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayThread]:
    with gateway_thread() as found:
        found.gateway.answers["bootstrap"] = {
            "node": {"node_id": NODE},
            "runtime_token": TOKEN,
            "config_version": 7,
        }
        yield found


@pytest.fixture(scope="module")
def node(gateway: GatewayThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Placed, enrolled, polling."""
    one = serve(tmp_path_factory.mktemp("swarm"))
    try:
        one.place()
        options = {
            "gateway": gateway.gateway.base_url,
            "server-name": "kite1",
            "max-concurrent-jobs": 2,
        }
        setup = one.post("/v1/swarm/setup", {"apiKey": OWNER_KEY, "options": options})
        assert setup.status_code == 200, setup.text
        wait_until(lambda: gateway.count("poll"), "the first poll", DEADLINE_S)
        yield one
    finally:
        one.end()


def a_job(job_id: str, **request: Any) -> dict[str, Any]:
    asked = {
        "model": "public-name",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 24,
        "temperature": 0,
        **request,
    }
    return {
        "job_id": job_id,
        "request_id": f"req-{job_id}",
        "node_id": NODE,
        "agent_slug": "mcoda-kite1-tiny",
        "source_agent_slug": "tiny-llama",
        "provider": "mcoda",
        "model": "public-name",
        "openai_request": asked,
    }


def run(gateway: GatewayThread, job: dict[str, Any]) -> dict[str, Any]:
    gateway.offer(job)
    wait_until(lambda: gateway.result_of(job["job_id"]), "the result", DEADLINE_S)
    result = gateway.result_of(job["job_id"])
    assert result is not None
    return result


def test_the_models_of_the_cluster_are_offered(gateway: GatewayThread, node: Served) -> None:
    beats = [c.body for c in gateway.gateway.calls if c.name == "heartbeat"]
    [model] = beats[0]["models"]
    assert (model["name"], model["model_id"]) == ("tiny-llama", node.model)
    assert (model["health_status"], model["exposed"]) == ("healthy", True)
    assert beats[0]["config_version"] == 7
    status = node.get("/v1/swarm").json()
    assert (status["state"], status["node_id"], status["problems"]) == ("polling", NODE, [])


def test_a_job_answers_what_the_api_answers(gateway: GatewayThread, node: Served) -> None:
    result = run(gateway, a_job("whole"))
    said = node.client.post(
        "/v1/chat/completions",
        json={**a_job("x")["openai_request"], "model": node.model},
    ).json()
    answer = result["openai_response"]
    assert answer["choices"][0]["message"]["content"] == said["choices"][0]["message"]["content"]
    assert answer["model"] == "public-name"
    assert answer["metadata"]["local_model"] == node.model
    usage = said["usage"]
    assert answer["usage"]["prompt_tokens"] == usage["prompt_tokens"]
    assert answer["usage"]["completion_tokens"] == usage["completion_tokens"]
    assert "stream_events" not in result
    order = [c.name for c in gateway.gateway.calls if "/jobs/whole/" in c.path]
    assert order == ["start", "result"]


def test_a_streamed_job_arrives_in_order(gateway: GatewayThread, node: Served) -> None:
    result = run(gateway, a_job("streamed", stream=True))
    batches = [c.body["stream_events"] for c in gateway.gateway.calls if "/streamed/ev" in c.path]
    chunks = [chunk for batch in batches for chunk in batch]
    assert max(len(batch) for batch in batches) <= 8
    texts = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert "".join(texts) == result["openai_response"]["choices"][0]["message"]["content"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "stop"
    assert "stream_events" not in result
    del node


def test_an_ollama_job_runs_on_the_same_model(gateway: GatewayThread, node: Served) -> None:
    job = {**a_job("ollama"), "provider": "ollama", "model": node.model}
    answer = run(gateway, job)["openai_response"]
    assert answer["choices"][0]["message"]["content"]
    assert answer["metadata"]["raw"]["eval_count"] == answer["usage"]["completion_tokens"] > 0


TOOL = {
    "type": "function",
    "function": {
        "name": "paint",
        "parameters": {
            "type": "object",
            "properties": {"colour": {"enum": ["red", "green"]}},
            "required": ["colour"],
            "additionalProperties": False,
        },
    },
}


def test_a_job_with_tools_brings_the_calls_of_the_model(
    gateway: GatewayThread, node: Served
) -> None:
    asked = {"tools": [TOOL], "tool_choice": "required", "max_tokens": 200}
    for stream in (False, True):
        result = run(gateway, a_job(f"tools-{stream}", **asked, stream=stream))
        choice = result["openai_response"]["choices"][0]
        [call] = choice["message"]["tool_calls"]
        assert choice["finish_reason"] == "tool_calls"
        assert list(call) == ["id", "type", "function"]
        assert call["function"]["name"] == "paint"
        assert json.loads(call["function"]["arguments"])["colour"] in {"red", "green"}
        assert [event["type"] for event in result["progress_events"]] == [
            "agent_selected",
            "status",
        ]
    del node


def test_a_schema_without_wrapper_is_followed(gateway: GatewayThread, node: Served) -> None:
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "green"]}},
        "required": ["colour"],
        "additionalProperties": False,
    }
    shape = {"type": "json_schema", "json_schema": schema}
    ollama = {"provider": "ollama", "model": node.model}
    for number, extra in enumerate((ollama, {})):
        job = a_job(f"schema-{number}", response_format=shape, max_tokens=200)
        result = run(gateway, {**job, **extra})
        assert result["status"] == "success", result
        content = result["openai_response"]["choices"][0]["message"]["content"]
        assert json.loads(content)["colour"] in {"red", "green"}


def test_a_job_of_200000_messages_is_refused_and_the_node_goes_on(
    gateway: GatewayThread, node: Served
) -> None:
    messages = [{"role": "user", "content": "x"}] * 200_000
    result = run(gateway, a_job("many", messages=messages))
    assert result["error"]["code"] == "validation_failed"
    assert "openai_request.messages" in result["error"]["message"]
    assert run(gateway, a_job("after-many"))["status"] == "success"
    assert node.get("/readyz").status_code == 200


def test_a_hostile_poll_is_told_and_survived(gateway: GatewayThread, node: Served) -> None:
    gateway.gateway.faults["poll"].append(Fault(200, raw=b"[" * 200_000))
    assert run(gateway, a_job("wakes-the-poll"))["status"] == "success"
    assert run(gateway, a_job("after-brackets"))["status"] == "success"
    assert node.get("/readyz").status_code == 200
    wait_until(lambda: node.get("/v1/swarm").json()["state"] == "polling", "polls", DEADLINE_S)
    assert not gateway.gateway.faults["poll"]


def test_a_job_for_another_model_is_refused_before_it_starts(
    gateway: GatewayThread, node: Served
) -> None:
    result = run(gateway, {**a_job("other"), "source_agent_slug": "someone-else"})
    assert result["error"]["code"] == "selected_agent_unavailable"
    assert result["pre_start_failure"] is True
    bad = run(gateway, a_job("bad", temperature="warm"))
    assert bad["error"]["code"] == "validation_failed"
    assert "openai_request.temperature" in bad["error"]["message"]
    del node


def test_drain_stops_polls_is_told_and_is_undone(gateway: GatewayThread, node: Served) -> None:
    beats = gateway.count("heartbeat")
    answer = node.client.put("/v1/drain", json={"draining": True}).json()
    assert [row["draining"] for row in answer["nodes"]] == [True]
    wait_until(lambda: gateway.count("heartbeat") > beats, "a heartbeat at once", DEADLINE_S)
    last = [c.body for c in gateway.gateway.calls if c.name == "heartbeat"][-1]
    assert last["runtime"]["drain_mode"] is True
    assert last["capacity"]["free_slots"] == 0
    assert node.get("/v1/swarm").json()["state"] == "draining"
    load = node.get("/v1/load").json()
    assert (load["node"]["draining"], load["total"]["freeSlots"]) == (True, 0)
    assert node.get("/v1/cluster").json()["nodes"][0]["draining"] is True
    assert "skulk_node_draining 1.0" in node.get("/metrics").text
    node.chat("still answered: there is no other instance")
    node.client.put("/v1/drain", json={"draining": False})
    polls = gateway.count("poll")
    run(gateway, a_job("after-drain"))
    wait_until(lambda: gateway.count("poll") > polls, "polls again", DEADLINE_S)


def test_no_secret_is_in_logs_arguments_or_diagnostics(node: Served) -> None:
    pid = node.daemon.pid
    shown = [
        shlex.join(psutil.Process(pid).cmdline()),
        node.get("/v1/diagnostics/node").text,
        node.get("/v1/swarm").text,
        node.get("/config").text,
        node.daemon.said(),
        (node.daemon.home / "swarm" / "config.json").read_text(),
    ]
    for text in shown:
        assert TOKEN not in text
        assert OWNER_KEY not in text


def test_generic_jobs_are_refused_until_enabled(node: Served) -> None:
    envelope = {"job_id": "g", "request_id": "r", "node_id": NODE, "job": {"job_type": "x"}}
    answer = node.post("/v1/swarm/self-hosted/node/generic-jobs", envelope)
    assert answer.status_code == 200
    assert list(answer.json()) == ["job_id", "request_id", "status", "result", "events", "timing"]
    assert answer.json()["result"]["error"]["code"] == "feature_disabled"


@pytest.fixture(scope="module")
def set_by_environment(
    gateway: GatewayThread, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DaemonProcess]:
    """A daemon with a signing secret and an owner's key, not enrolled."""
    environ = {
        "MSWARM_SELF_HOSTED_INVOCATION_SIGNING_SECRET": "s3cret",
        "MSWARM_API_KEY": "msw_of_the_daemon",
        "MSWARM_GATEWAY_BASE_URL": gateway.gateway.base_url,
    }
    daemon = spawn_daemon(tmp_path_factory.mktemp("environment"), environ=environ)
    try:
        daemon.wait_ready()
        yield daemon
    finally:
        daemon.kill()


def test_signed_jobs_are_checked(set_by_environment: DaemonProcess) -> None:
    """With a signing secret nothing runs unsigned, whoever asks."""
    envelope = {"job_id": "g", "request_id": "r", "node_id": NODE, "job": {}}
    path = f"{set_by_environment.url}/v1/swarm/self-hosted/node/generic-jobs"
    answer = httpx.post(path, json=envelope, timeout=DEADLINE_S)
    assert answer.status_code == 401
    assert "self_hosted_invocation_token_invalid" in answer.text
    claims = {"node_id": NODE, "job_id": "g", "request_id": "r"}
    token = a_token(claims, "s3cret")
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx.post(path, json=envelope, headers=headers, timeout=DEADLINE_S)
    assert answer.status_code == 404, answer.text  # signed, but nobody is enrolled here
    other = httpx.post(path, json={**envelope, "job_id": "h"}, headers=headers, timeout=DEADLINE_S)
    assert other.status_code == 401
    assert "another job_id" in other.text
    cancel = f"{path}/g/cancel"
    assert httpx.post(cancel, json=claims, timeout=DEADLINE_S).status_code == 401
    absent = httpx.post(cancel, json=claims, headers=headers, timeout=DEADLINE_S)
    assert absent.status_code == 404, absent.text


def test_the_daemons_own_key_goes_only_to_its_own_gateway(
    gateway: GatewayThread, set_by_environment: DaemonProcess
) -> None:
    own = gateway.gateway.base_url
    other = own.replace("127.0.0.1", "localhost")
    path, calls = f"{set_by_environment.url}/v1/swarm/setup", gateway.count("bootstrap")
    body = {"options": {"gateway": other}}
    refused = httpx.post(path, json=body, timeout=DEADLINE_S)
    assert refused.status_code == 400
    assert "MSWARM_API_KEY" in refused.text
    assert own in refused.text
    plan = httpx.post(path, json={"dryRun": True}, timeout=DEADLINE_S)
    assert plan.json()["report"]["gateway_base_url"] == own
    assert gateway.count("bootstrap") == calls
    taken = httpx.post(path, json={}, timeout=DEADLINE_S)
    assert taken.status_code == 200, taken.text
    [last] = [c for c in gateway.gateway.calls if c.name == "bootstrap"][calls:]
    assert last.headers["x-api-key"] == "msw_of_the_daemon"
    leave = f"{set_by_environment.url}/v1/swarm/leave"
    assert httpx.post(leave, json={"force": True}, timeout=DEADLINE_S).status_code == 200


def test_sigterm_lets_a_job_finish(tmp_path: Path) -> None:
    with gateway_thread() as gateway:
        gateway.gateway.answers["bootstrap"] = {
            "node": {"node_id": NODE},
            "runtime_token": TOKEN,
        }
        node = serve(tmp_path)
        try:
            node.place()
            body = {"apiKey": OWNER_KEY, "options": {"gateway": gateway.gateway.base_url}}
            assert node.post("/v1/swarm/setup", body).status_code == 200
            wait_until(lambda: gateway.count("poll"), "the first poll", DEADLINE_S)
            with main_thread_stopped(node.runner_pid()):
                gateway.offer(a_job("last"))
                wait_until(lambda: gateway.count("start"), "the start", DEADLINE_S)
                node.daemon.process.send_signal(signal.SIGTERM)
                wait_until(lambda: _refuses(node), "the stop to begin", DEADLINE_S)
            assert node.daemon.process.wait(DEADLINE_S) == 0
            result = gateway.result_of("last")
            assert result is not None
            assert result["status"] == "success", result
        finally:
            node.end()


def _refuses(node: Served) -> bool:
    """No new connection is taken once the daemon stops."""
    try:
        return httpx.get(f"{node.daemon.url}/readyz", timeout=DEADLINE_S).status_code != 200
    except httpx.TransportError:
        return True


def a_token(claims: dict[str, Any], secret: str) -> str:
    """One that is good for as long as tests may last."""
    whole = {
        **claims,
        "scope": "self_hosted.generic_job.invoke",
        "exp": 4_000_000_000,
        "deadline_at": "2096-01-01T00:00:00.000Z",
    }
    parts = [_part(json.dumps({"alg": "HS256"}).encode()), _part(json.dumps(whole).encode())]
    mac = hmac.new(secret.encode(), ".".join(parts).encode(), hashlib.sha256).digest()
    return ".".join([*parts, _part(mac)])


def _part(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def test_bad_input_is_named_and_changes_nothing(node: Served) -> None:
    before = node.get("/v1/swarm").json()
    unknown = node.post("/v1/swarm/setup", {"apiKey": "k", "options": {"colour": "red"}})
    assert unknown.status_code == 400
    assert "options.colour" in unknown.text
    direct = node.post("/v1/swarm/setup", {"apiKey": "k", "options": {"mode": "direct"}})
    assert direct.status_code == 400
    assert node.client.put("/v1/drain", json={"draining": "yes"}).status_code == 422
    missing = node.client.put("/v1/drain", json={"draining": True, "nodeIds": ["node-x"]})
    assert missing.status_code == 404
    after = node.get("/v1/swarm").json()
    assert after["gateway_base_url"] == before["gateway_base_url"]
    assert node.get("/v1/load").json()["node"]["draining"] is False


def test_kill_between_run_and_delivery_loses_nothing(gateway: GatewayThread, node: Served) -> None:
    """Last: it ends the daemon of this module."""
    gateway.gateway.always["result"] = Fault(hang=True)
    gateway.offer(a_job("killed"))
    wait_until(lambda: gateway.result_of("killed"), "the first attempt", DEADLINE_S)
    first = gateway.result_of("killed")
    home = node.daemon.home
    node.client.put("/v1/drain", json={"draining": True})
    node.daemon.process.kill()
    node.daemon.process.wait(DEADLINE_S)
    del gateway.gateway.always["result"]
    results = gateway.count("result")
    again = serve(home)
    try:
        wait_until(lambda: gateway.count("result") > results, "the delivery", DEADLINE_S)
        assert gateway.result_of("killed") == first
        starts = [c for c in gateway.gateway.calls if c.path.endswith("/jobs/killed/start")]
        assert len(starts) == 1
        assert again.get("/v1/load").json()["node"]["draining"] is True  # that was kept, too
        wait_until(
            lambda: again.get("/v1/swarm").json()["owed_results"] == 0, "nothing owed", DEADLINE_S
        )
        kept = [json.loads(file.read_text()) for file in (home / "swarm" / "jobs").iterdir()]
        assert all("result" not in entry for entry in kept)
        left = again.post("/v1/swarm/leave", {})
        assert left.json()["report"]["gateway_notification"]["notified"] is True
        assert again.get("/v1/swarm").json()["configured"] is False
        assert not (home / "swarm" / "node.key").exists()
    finally:
        again.end()

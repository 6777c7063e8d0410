"""Every read of a real daemon, checked by our models, our OpenAPI and the reference's."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import TypeAdapter

from skulkd import __version__
from skulkd.wire.config_api import ConfigAnswer
from skulkd.wire.diagnostics import ClusterDiagnostics, NodeDiagnostics
from skulkd.wire.events import Event
from skulkd.wire.identity import NodeIdentityAnswer, ServiceInfo
from skulkd.wire.state import State
from skulkd.wire.timeline import Timeline
from tests.daemon_process import ROOT, DaemonProcess, wait_until

REFERENCE = json.loads((Path(__file__).parents[1] / "data/openapi.json").read_text())


def fetch(daemon: DaemonProcess, path: str, method: str = "GET") -> tuple[int, Any, Any]:
    """Status, headers and decoded body, whatever the status."""
    request = urllib.request.Request(daemon.url + path, method=method)
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def check_schema(document: dict[str, Any], schema: dict[str, Any], body: object) -> None:
    whole = {**schema, "components": document["components"]}
    jsonschema.Draft202012Validator(whole).validate(body)


def test_node_id_is_a_bare_string_and_that_of_the_ready_line(shared_daemon: DaemonProcess) -> None:
    status, headers, body = fetch(shared_daemon, "/node_id")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert re.fullmatch(rb'"node-[0-9a-f]{16}"', body)
    assert json.loads(body) == shared_daemon.node_id


def test_identity_tells_host_name_and_a_usable_address(shared_daemon: DaemonProcess) -> None:
    answer = NodeIdentityAnswer.model_validate(shared_daemon.get("/node/identity"))
    assert answer.node_id == shared_daemon.node_id
    assert answer.hostname
    assert not answer.ip_address.startswith(("127.", "169.254."))


def test_state_has_the_reference_keys_in_order_and_this_node_in_it(
    shared_daemon: DaemonProcess,
) -> None:
    body = shared_daemon.get("/state")
    assert list(body) == [
        "instances", "runners", "downloads", "tasks", "lastSeen", "topology", "tracingEnabled",
        "lastEventAppliedIdx", "nodeNetwork", "nodeThunderbolt", "nodeThunderboltBridge",
        "thunderboltBridgeCycles", "nodeMemory", "nodeSystem", "nodeIdentities", "nodeDisk",
        "nodeRdmaCtl", "nodeHealth",
    ]  # fmt: skip
    state = State.model_validate(body)
    own = shared_daemon.node_id
    assert list(state.topology.nodes) == list(state.last_seen) == [own]
    for rows in (state.node_network, state.node_memory, state.node_disk, state.node_health):
        assert list(rows) == [own]
    assert state.node_identities[own].friendly_name == "kite1"
    assert state.node_memory[own].ram_total.in_bytes > 0
    assert body["lastSeen"][own].endswith("Z")


def test_state_moves_with_the_readings(shared_daemon: DaemonProcess) -> None:
    own = shared_daemon.node_id
    first = shared_daemon.get("/state")["lastSeen"][own]
    wait_until(lambda: shared_daemon.get("/state")["lastSeen"][own] > first, "a newer lastSeen")


def test_events_explain_the_state(shared_daemon: DaemonProcess) -> None:
    events = shared_daemon.get("/events")
    assert len(events) == shared_daemon.get("/state")["lastEventAppliedIdx"] + 1
    TypeAdapter(list[Event]).validate_python(events)


def test_node_diagnostics_are_complete_and_true(shared_daemon: DaemonProcess) -> None:
    body = shared_daemon.get("/v1/diagnostics/node")
    check_schema(REFERENCE, REFERENCE["components"]["schemas"]["NodeDiagnostics"], body)
    bundle = NodeDiagnostics.model_validate(body)
    runtime = bundle.runtime
    assert runtime.node_id == runtime.master_node_id == shared_daemon.node_id
    assert runtime.is_master
    assert runtime.friendly_name == "kite1"
    assert runtime.cwd == str(shared_daemon.home)
    assert runtime.config_path == str(shared_daemon.home / "skulk.yaml")
    assert not runtime.config_file_exists
    assert "libp2PNamespace" in body["runtime"]
    assert bundle.resources.current_memory is not None
    assert bundle.resources.gathered_memory is not None
    own = {process.pid: process for process in bundle.processes}[shared_daemon.pid]
    assert (own.role, own.is_child_of_skulk) == ("skulk", True)
    assert own.rss is not None
    assert own.rss.in_bytes > 10_000_000
    assert bundle.supervisor_runners == bundle.placements == []
    assert bundle.generated_at.endswith("+00:00")


def test_cluster_diagnostics_of_one_node_hold_its_bundle(shared_daemon: DaemonProcess) -> None:
    body = shared_daemon.get("/v1/diagnostics/cluster")
    check_schema(REFERENCE, REFERENCE["components"]["schemas"]["ClusterDiagnostics"], body)
    cluster = ClusterDiagnostics.model_validate(body)
    [entry] = cluster.nodes
    assert (entry.node_id, entry.ok, entry.url) == (shared_daemon.node_id, True, None)
    assert entry.diagnostics is not None


def test_diagnostics_by_own_id_are_the_bare_bundle(shared_daemon: DaemonProcess) -> None:
    body = shared_daemon.get(f"/v1/diagnostics/cluster/{shared_daemon.node_id}")
    assert NodeDiagnostics.model_validate(body).runtime.node_id == shared_daemon.node_id


def test_diagnostics_of_an_unknown_node_are_a_404(shared_daemon: DaemonProcess) -> None:
    status, _, body = fetch(shared_daemon, "/v1/diagnostics/cluster/node-nobody")
    assert status == 404
    error = json.loads(body)["error"]
    assert error == {
        "message": "Node diagnostics endpoint not reachable: node-nobody",
        "type": "Not Found",
        "param": None,
        "code": 404,
    }


def test_timeline_of_one_idle_node_is_empty_and_not_taken_for_a_node_id(
    shared_daemon: DaemonProcess,
) -> None:
    body = shared_daemon.get("/v1/diagnostics/cluster/timeline")
    check_schema(REFERENCE, REFERENCE["components"]["schemas"]["ClusterTimeline"], body)
    timeline = Timeline.model_validate(shared_daemon.get("/v1/cluster/timeline"))
    assert timeline.local_node_id == shared_daemon.node_id
    assert timeline.runners == timeline.timeline == timeline.unreachable_nodes == []


def test_config_without_a_file_is_empty_but_tells_the_values_in_force(
    shared_daemon: DaemonProcess,
) -> None:
    answer = ConfigAnswer.model_validate(shared_daemon.get("/config"))
    assert (answer.config, answer.file_exists) == ({}, False)
    assert answer.effective.kv_cache_backend == "default"
    assert answer.settings is not None
    by_key = {setting.key: setting for setting in answer.settings}
    assert (by_key["node.name"].value, by_key["node.name"].origin) == ("kite1", "--name")
    assert by_key["tracing.retention_days"].origin == "default"
    assert by_key["cluster.secret"].value is None


def test_health_and_readiness_are_ok(shared_daemon: DaemonProcess) -> None:
    assert shared_daemon.get("/healthz") == {"status": "ok"}
    assert shared_daemon.get("/readyz") == {"status": "ok"}


def test_metrics_count_by_template_and_show_the_machine(shared_daemon: DaemonProcess) -> None:
    fetch(shared_daemon, "/v1/diagnostics/cluster/some-raw-id")
    fetch(shared_daemon, "/no/such/path-at-all")
    fetch(shared_daemon, "/state", "PROPFIND")
    status, headers, body = fetch(shared_daemon, "/metrics")
    text = body.decode()
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain")
    assert f'skulk_build_info{{version="{__version__}"}} 1.0' in text
    assert re.search(r'requests_total\{method="GET",route="unmatched",status="404"\} [1-9]', text)
    assert 'route="/v1/diagnostics/cluster/{node_id}",status="404"' in text
    assert 'method="OTHER"' in text
    assert re.search(r"skulk_node_memory_total_bytes [1-9]", text)
    assert re.search(r"skulk_http_request_seconds_bucket\{le=\"\+Inf\"", text)
    assert re.search(r"skulk_event_loop_lag_seconds \d", text)
    for raw in ("some-raw-id", "path-at-all", "PROPFIND"):
        assert raw not in text


def test_every_metric_is_documented(shared_daemon: DaemonProcess) -> None:
    text = fetch(shared_daemon, "/metrics")[2].decode()
    served = set(re.findall(r"^# TYPE (skulk_\w+)", text, re.MULTILINE))
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`(skulk_\w+)", page))
    assert served - documented == set()
    after_the_first_request = {"skulk_load_latency_seconds"}
    assert documented - served <= after_the_first_request


def test_an_unknown_path_is_the_bare_404(shared_daemon: DaemonProcess) -> None:
    status, _, body = fetch(shared_daemon, "/nope")
    assert (status, body) == (404, b'{"detail":"Not Found"}')


def test_an_unknown_path_under_v1_is_an_error_of_openai(shared_daemon: DaemonProcess) -> None:
    status, _, body = fetch(shared_daemon, "/v1/assistants?limit=1", "POST")
    assert status == 404
    assert json.loads(body)["error"] == {
        "message": "Unknown request URL: POST /v1/assistants (see /api/docs)",
        "type": "invalid_request_error",
        "param": None,
        "code": "unknown_url",
    }


def test_one_model_is_found_by_its_id(shared_daemon: DaemonProcess) -> None:
    listed = shared_daemon.get("/v1/models")["data"][0]
    for spelling in (listed["id"], listed["id"].replace("/", "%2F")):
        found = shared_daemon.get(f"/v1/models/{spelling}")
        assert "/" in found["id"]
        assert {**found, "created": 0} == {**listed, "created": 0}
    status, _, body = fetch(shared_daemon, "/v1/models/org/nothing")
    error = json.loads(body)["error"]
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert "org/nothing" in error["message"]


def test_the_bare_address_says_what_this_is(shared_daemon: DaemonProcess) -> None:
    info = ServiceInfo.model_validate(shared_daemon.get("/"))
    assert (info.name, info.node_name) == ("skulkd", "kite1")
    for path in info.links.values():
        assert fetch(shared_daemon, path)[0] in (200, 405), path
    browser = urllib.request.Request(
        shared_daemon.url + "/", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    )
    with urllib.request.urlopen(browser, timeout=20) as answer:
        page = answer.read().decode()
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "kite1" in page
    assert "href='/api/docs'" in page


@pytest.mark.parametrize("method", ["DELETE", "PATCH", "HEAD", "OPTIONS", "PROPFIND"])
def test_a_wrong_method_is_the_bare_405_with_allow(
    shared_daemon: DaemonProcess, method: str
) -> None:
    status, headers, body = fetch(shared_daemon, "/state", method)
    assert (status, headers["Allow"]) == (405, "GET")
    assert body == (b"" if method == "HEAD" else b'{"detail":"Method Not Allowed"}')


def test_every_answer_has_its_own_request_id_and_hides_the_server_version(
    shared_daemon: DaemonProcess,
) -> None:
    paths = ["/node_id", "/events", "/api/docs", "/metrics", "/nope", "/healthz", "/state"]
    seen = set()
    for path in paths:
        _, headers, _ = fetch(shared_daemon, path)
        seen.add(headers["X-Request-Id"])
        assert headers["Server"] == "skulkd"
    assert len(seen) == len(paths)
    assert None not in seen

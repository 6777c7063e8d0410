"""`skulkctl load`, `drain`, `undrain` and `swarm` before a real daemon and a gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster_live.ptrace import main_thread_stopped
from tests.daemon_process import ROOT, wait_until
from tests.inference.served import Served, serve
from tests.skulkctl_process import Result, skulkctl
from tests.swarm.gateway_thread import GatewayThread, gateway_thread

DEADLINE_S = 300.0
TOKEN = "msn_cli_token_0123456789"
KEY = "msw_cli_key_0123456789"


@dataclass(frozen=True)
class Operator:
    """Somebody with a terminal to one node."""

    node: Served
    home: Path

    def run(self, *words: str, stdin: str = "", environ: dict[str, str] | None = None) -> Result:
        return skulkctl(
            *words,
            home=self.home,
            endpoint=self.node.daemon.url,
            environ=environ,
            stdin=stdin,
            cwd=ROOT,
        )

    def rows(self, *words: str) -> list[dict[str, object]]:
        ran = self.run(*words, "-o", "json")
        assert ran.code == 0, ran.err
        found: list[dict[str, object]] = json.loads(ran.out)["items"]
        return found


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayThread]:
    with gateway_thread() as found:
        found.gateway.answers["bootstrap"] = {
            "node": {"node_id": "shn_cli"},
            "runtime_token": TOKEN,
        }
        found.gateway.answers["enroll"] = {"runtime_token": TOKEN}
        yield found


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    node = serve(tmp_path_factory.mktemp("node"))
    try:
        node.place()
        yield Operator(node, tmp_path_factory.mktemp("operator"))
    finally:
        node.end()


def test_load_shows_slots_and_the_total(operator: Operator) -> None:
    [node, total] = operator.rows("load", "--all-nodes")
    assert (node["state"], node["activeJobs"], node["maxConcurrency"]) == ("ok", 0, 8)
    assert (total["name"], total["freeSlots"]) == ("total", 8)
    table = operator.run("load").out.splitlines()
    assert table[0].split() == [
        "NODE", "STATE", "ACTIVE", "QUEUED", "FREE", "SLOTS", "LATENCY", "FAILURES",
    ]  # fmt: skip


@contextmanager
def held_request(node: Served) -> Iterator[None]:
    """A request that cannot end before the block does: its runner is held by a debugger."""
    with ThreadPoolExecutor(1) as pool:
        with main_thread_stopped(node.runner_pid()):
            answer = pool.submit(node.chat, "hello")
            busy = 'skulk_load_active_jobs{execution_class="chat"} 1.0'
            wait_until(lambda: busy in node.get("/metrics").text, "the request", DEADLINE_S)
            yield
        answer.result(DEADLINE_S)


def test_load_counts_requests_and_their_latency(operator: Operator) -> None:
    with held_request(operator.node):
        [node, _] = operator.rows("load")
        assert (node["activeJobs"], node["freeSlots"], node["chat"]) == (1, 7, "1+0")
    wait_until(
        lambda: operator.rows("load")[0]["activeJobs"] == 0, "the request to end", DEADLINE_S
    )
    assert operator.rows("load")[0]["avgLatencyMs"] is not None


def test_drain_is_seen_everywhere_and_undone(operator: Operator) -> None:
    name = str(operator.rows("load")[0]["name"])
    ran = operator.run("drain", name, "--wait", "--deadline", "60s")
    assert ran.code == 0, ran.err
    assert "nothing left to finish" in ran.err
    [node, total] = operator.rows("load")
    assert (node["state"], node["freeSlots"], total["freeSlots"]) == ("draining", 0, 0)
    assert operator.rows("nodes")[0]["draining"] is True
    assert "draining" in operator.run("nodes").out
    assert "accepts no new work" in operator.run("status").out
    assert "draining" in operator.run("top", "--once").out
    doctor = operator.run("doctor")
    assert f"{name} is draining and accepts no new work" in doctor.out
    assert f"skulkctl undrain {name}" in doctor.err
    placed = operator.run("place", operator.node.model, "--yes")
    assert placed.code != 0
    assert "drain" in placed.err
    again = operator.run("drain", name, "-o", "json")
    assert json.loads(again.out)["items"][0]["changed"] is False
    assert operator.run("undrain", "--all").code == 0
    assert operator.rows("load")[0]["state"] == "ok"


def test_a_deadline_that_passes_tells_what_is_left(operator: Operator) -> None:
    name = str(operator.rows("load")[0]["name"])
    with held_request(operator.node):
        ran = operator.run("drain", name, "--wait", "--deadline", "1s")
    operator.run("undrain", name)
    assert ran.code == 6, ran.err
    assert "is not empty after 1.0s" in ran.err
    assert f"{name}: request " in ran.err
    assert "hint: " in ran.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("drain",), 2, "give a NODE, or --all"),
        (("drain", "kite1", "--all"), 2, "give a NODE, or --all"),
        (("drain", "nobody"), 3, "no node named nobody"),
        (("drain", "--all"), 9, "add  --yes"),
        (("drain", "x", "--deadline", "soon"), 2, "--deadline: 'soon' is not a duration"),
        (("swarm", "run-once"), 3, "not enrolled"),
        (("swarm", "enroll", "shn_1"), 2, "no one-time token"),
        (("swarm", "leave"), 9, "add  --yes"),
    ],
)
def test_mistakes_are_named_and_change_nothing(
    operator: Operator, words: Sequence[str], code: int, said: str
) -> None:
    ran = operator.run(*words)
    assert (ran.code, said in ran.err) == (code, True), ran.err
    assert operator.rows("load")[0]["state"] == "ok"


def test_the_life_of_an_enrolment(operator: Operator, gateway: GatewayThread) -> None:
    none = operator.run("swarm", "status")
    assert (none.code, none.out) == (0, "gateway node  not enrolled\n")
    url = gateway.gateway.base_url
    dry = operator.run(
        "swarm", "setup", "--api-key-stdin", "--gateway", url, "--dry-run", stdin=KEY
    )
    assert dry.code == 0, dry.err
    assert "nothing was sent" in dry.out
    assert url in dry.out
    assert gateway.count("bootstrap") == 0
    for wrong, said in (
        (("--gateway", "http://134744072"), "use https"),
        (("--gateway", "gw.example"), "http or https"),
        (("--exposure-policy", "hide"), "must be one of"),
    ):
        bad = operator.run("swarm", "setup", "--api-key-stdin", *wrong, "--dry-run", stdin=KEY)
        assert (bad.code, said in bad.err) == (4, True), bad.err
    ran = operator.run("swarm", "setup", "--api-key-stdin", "--gateway", url, stdin=f"{KEY}\n")
    assert ran.code == 0, ran.err
    assert ran.out == "heartbeat accepted: online, 1 model, 0 active jobs, free slots: 1\n"
    wait_until(lambda: gateway.count("poll"), "the first poll", DEADLINE_S)
    status = operator.run("swarm", "status")
    assert status.code == 0, status.out
    assert "polling" in status.out
    assert TOKEN not in status.out + status.err
    assert "polling as shn_cli" in operator.run("doctor").out
    once = operator.run("swarm", "run-once", "-o", "json")
    assert json.loads(once.out)["capacity"]["max_concurrency"] == 1
    assert "paused" in operator.run("swarm", "pause").out
    assert "paused" in operator.run("swarm", "status").out
    assert operator.run("swarm", "resume").code == 0
    left = operator.run("swarm", "leave", "--yes")
    assert (left.code, left.out) == (0, "left as shn_cli\n")
    token = {"MSWARM_SELF_HOSTED_ENROLLMENT_TOKEN": "mse_once"}
    again = operator.run("swarm", "enroll", "shn_two", "--gateway", url, environ=token)
    assert (again.code, again.out) == (0, "enrolled as shn_two\n")
    assert gateway.gateway.bodies("enroll")[-1]["enrollment_token"] == "mse_once"
    assert operator.run("swarm", "leave", "--yes").code == 0


def test_a_gateway_that_says_no_is_quoted_without_the_key(
    operator: Operator, gateway: GatewayThread
) -> None:
    from tests.swarm.loopback_gateway import Fault

    gateway.gateway.faults["bootstrap"].append(Fault(403, {"error": f"{KEY} is unknown"}))
    url = gateway.gateway.base_url
    ran = operator.run("swarm", "setup", "--gateway", url, environ={"MSWARM_API_KEY": KEY})
    assert ran.code == 1
    assert "request_failed:403" in ran.err
    assert KEY not in ran.err + ran.out
    insecure = operator.run(
        "swarm", "setup", "--gateway", "http://gw.example", environ={"MSWARM_API_KEY": KEY}
    )
    assert insecure.code == 4
    assert "use https" in insecure.err

"""`skulkctl place`: accepted, refused with arithmetic, watched until it is ready or has failed."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

import pytest

from tests.cli.builders import a_supervised_runner, accepted
from tests.cli.conftest import Cli
from tests.cli.stock import HANG, KITE1, KITE2, KITE3, Reply, recorded
from tests.cli_inference.model_node import (
    INSTANCE,
    MODEL,
    READY,
    ModelNode,
    a_state,
    an_empty_state,
    another_instance,
    error_body,
    the_states,
)
from tests.daemon_process import wait_until
from tests.skulkctl_process import start_skulkctl

TINY = "skulk/tiny-llama"
ACCEPTED = accepted(MODEL)
LOADING: Any = {"RunnerLoading": {"layersLoaded": 2, "totalLayers": 8}}
FAILED: Any = {"RunnerFailed": {"errorMessage": "exitcode=70\nsecond line"}}


def accepting(node: ModelNode, *states: Any, **told: str) -> None:
    """Place anything; then the states one after the other."""
    node.on("POST", "/place_instance", {**ACCEPTED, **told})
    node.on("GET", "/state", the_states(an_empty_state(), *states))


def test_place_returns_when_the_daemon_accepted(cli: Cli, node: ModelNode) -> None:
    accepting(node, a_state(LOADING, None), instance_id=INSTANCE)
    assert cli("place", MODEL) == (
        0,
        f"placing {MODEL} (7f3c2a10) on kite1, kite2\n",
        "hint: skulkctl wait 7f3c2a10\n",
    )
    assert node.bodies("/place_instance") == [
        {
            "model_id": MODEL,
            "sharding": "Pipeline",
            "instance_meta": "MlxRing",
            "min_nodes": 1,
            "excluded_nodes": [],
        }
    ]


def test_every_wish_goes_to_the_planner_with_nodes_by_id(cli: Cli, node: ModelNode) -> None:
    accepting(node, a_state(), instance_id=INSTANCE)
    wishes = ["--sharding", "tensor", "--instance-meta", "mlxjaccl", "--min-nodes", "2"]
    assert cli("place", MODEL, *wishes, "--exclude", "kite1", "--exclude", KITE3[:11]).code == 0
    assert node.bodies("/place_instance") == [
        {
            "model_id": MODEL,
            "sharding": "Tensor",
            "instance_meta": "MlxJaccl",
            "min_nodes": 2,
            "excluded_nodes": [KITE1, KITE3],
        }
    ]


def test_a_stock_server_is_watched_for_the_new_instance(cli: Cli, node: ModelNode) -> None:
    old = another_instance(an_empty_state(), "old-one")
    node.on("POST", "/place_instance", ACCEPTED)
    both = another_instance(a_state(), "old-one")
    node.on("GET", "/state", the_states(old, old, both))
    result = cli("place", MODEL, "-q")
    assert (result.code, result.out) == (0, f"{INSTANCE}\n")


def test_placing_a_model_again_is_noted(cli: Cli, node: ModelNode) -> None:
    node.on("POST", "/place_instance", {**ACCEPTED, "instance_id": "new-one"})
    node.on("GET", "/state", the_states(a_state(), another_instance(a_state(), "new-one")))
    result = cli("place", MODEL)
    assert result.out == f"placing {MODEL} (new-one) on kite1\n"
    assert result.err.startswith(
        f"note: {MODEL} is placed already (7f3c2a10); this places another instance"
        " (--ensure keeps the one that is there)\n"
    )


def test_ensure_keeps_what_is_placed_and_waits_for_it(cli: Cli, node: ModelNode) -> None:
    node.on("GET", "/state", the_states(a_state(LOADING, None), a_state(LOADING, None), a_state()))
    result = cli("place", MODEL, "--ensure", "--wait", "-q")
    assert (result.code, result.err) == (0, "")
    node.on("GET", "/state", a_state())
    kept = cli("place", MODEL, "--ensure")
    assert (kept.code, kept.err) == (0, "")
    assert kept.out == f"already placed {MODEL} (7f3c2a10) on kite1, kite2\n"
    assert cli("place", MODEL, "--ensure", "--dry-run").out.startswith("would keep")
    assert not [seen for seen in node.seen if seen.method == "POST"]


def test_ensure_places_what_is_missing_and_tells_the_master_so(cli: Cli, node: ModelNode) -> None:
    accepting(node, a_state(), instance_id=INSTANCE)
    result = cli("place", MODEL, "--ensure", "-q")
    assert (result.code, result.out) == (0, f"{INSTANCE}\n")
    assert node.asked("POST", "/place_instance?ensure=true")


def test_ensure_does_not_call_a_failed_instance_placed(cli: Cli, node: ModelNode) -> None:
    node.on("GET", "/state", a_state(FAILED, LOADING))
    result = cli("place", MODEL, "--ensure")
    assert result.code == 1
    assert "cannot respond" in result.err
    assert not [seen for seen in node.seen if seen.method == "POST"]


def test_ensure_keeps_what_waits_for_a_node(cli: Cli, node: ModelNode) -> None:
    node.on("GET", "/state", an_empty_state())
    row = {"instanceId": INSTANCE, "modelId": MODEL, "ranks": 1, "sharding": "Pipeline"}
    node.server = "skulkd"
    node.on("GET", "/v1/placements", {"placements": [], "waiting": [row]})
    result = cli("place", MODEL, "--ensure")
    assert (result.code, result.out) == (0, f"already placed {MODEL} (7f3c2a10)\n")


def test_ensure_and_plan_exclude_each_other(cli: Cli, node: ModelNode) -> None:
    assert cli("place", MODEL, "--ensure", "--plan", "plan-1").code == 2


def test_a_short_name_means_the_model_whose_files_are_here(cli: Cli, node: ModelNode) -> None:
    here = [{"id": TINY}, {"id": "other/Llama"}]
    everything = [*here, {"id": "elsewhere/tiny-llama"}]
    node.on(
        "GET",
        "/models",
        lambda seen: {"data": here if "downloaded" in seen.path else everything},
    )
    accepting(node, a_state(), instance_id=INSTANCE)
    cli("place", "tiny")
    cli("place", "elsewhere")
    assert [body["model_id"] for body in node.bodies("/place_instance")] == [
        TINY,
        "elsewhere/tiny-llama",
    ]


def test_wait_shows_progress_and_ends_when_ready(cli: Cli, node: ModelNode) -> None:
    accepting(
        node,
        a_state(None, None),
        a_state(LOADING, None),
        a_state(READY, {"RunnerWarmingUp": {}}),
        a_state(),
        instance_id=INSTANCE,
    )
    result = cli("place", MODEL, "--wait")
    assert result == (
        0,
        f"ready {MODEL} (7f3c2a10) on kite1, kite2\n",
        f"kite1 waiting for a runner, kite2 waiting for a runner  {MODEL} (7f3c2a10)\n"
        f"kite1 loading 2/8, kite2 waiting for a runner  {MODEL} (7f3c2a10)\n"
        f"kite1 ready, kite2 warming up  {MODEL} (7f3c2a10)\n",
    )


def test_wait_ends_at_the_first_failure_with_runner_error_and_phase(
    cli: Cli, node: ModelNode
) -> None:
    accepting(node, a_state(FAILED, LOADING), instance_id=INSTANCE)
    record = a_supervised_runner("run-a", "load_model", "layer 3")
    diagnostics = {**recorded("diagnostics_node"), "supervisorRunners": [record]}
    node.on("GET", f"/v1/diagnostics/cluster/{KITE1}", diagnostics)
    told = (
        f"error: {MODEL} (7f3c2a10) did not become ready\n"
        "  rank 0 on kite1 (runner run-a): exitcode=70 second line\n"
        "  last phase: load_model (layer 3)\n"
        "hint: skulkctl diagnose kite1\n"
        "hint: after fixing it, run:  {again}\n"
        "hint: unload it:  skulkctl delete 7f3c2a10\n"
    )
    # A stock node cannot restart an instance.
    stock_way = f"skulkctl delete 7f3c2a10 && skulkctl place {MODEL} --wait"
    assert cli("place", MODEL, "--wait", "-q") == (1, "", told.format(again=stock_way))
    node.server = "skulkd"
    own_way = "skulkctl restart --instance 7f3c2a10 --wait"
    assert cli("place", MODEL, "--wait", "-q") == (1, "", told.format(again=own_way))


def test_wait_gives_the_master_time_to_move_what_has_no_room(cli: Cli, node: ModelNode) -> None:
    short: Any = {"RunnerFailed": {"errorMessage": "not started: memory-guard: needs 9 GiB"}}
    accepting(node, a_state(short, LOADING), a_state(), instance_id=INSTANCE)
    result = cli("place", MODEL, "--wait", "-q")
    assert (result.code, result.out) == (0, f"{INSTANCE}\n")


def test_a_failure_is_told_without_a_phase_when_nobody_knows_it(cli: Cli, node: ModelNode) -> None:
    accepting(node, a_state(FAILED), instance_id=INSTANCE)
    result = cli("place", MODEL, "--wait", "-q")
    assert result.code == 1
    assert "last phase" not in result.err


def test_the_deadline_is_exit_6_and_says_that_loading_goes_on(cli: Cli, node: ModelNode) -> None:
    accepting(node, a_state(LOADING), instance_id=INSTANCE)
    assert cli("place", MODEL, "--wait", "--timeout", "300ms", "-q") == (
        6,
        "",
        f"error: {MODEL} (7f3c2a10) is not ready yet\n"
        "  waited 0.3s; status starting: loading 2/8; it continues in the cluster\n"
        "hint: wait longer:  skulkctl wait 7f3c2a10 --for ready --timeout 30m\n",
    )


def test_ctrl_c_while_waiting_says_what_goes_on(node: ModelNode) -> None:
    accepting(node, a_state(LOADING), instance_id=INSTANCE)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = start_skulkctl("place", MODEL, "--wait", "-q", **pipes)
    wait_until(lambda: [seen.method for seen in node.seen][-3:].count("GET") == 3, "the wait")
    child.send_signal(signal.SIGINT)
    out, said = child.communicate(timeout=600)
    assert (child.returncode, out) == (130, b"")
    assert said == (
        f"warning: interrupted; {MODEL} (7f3c2a10) continues starting in the cluster\n".encode()
    )


def test_a_refusal_shows_the_arithmetic_with_names_and_what_to_free(
    cli: Cli, node: ModelNode
) -> None:
    message = (
        f"org/big-8bit (31.2GB weights) does not fit: [{KITE1}] Pipeline: {KITE1} short, wants "
        "~41.8GB = 31.2GB weights + 1.0GB KV@8192tok + overhead, has 10.0GB of RAM budget"
    )
    node.on("POST", "/place_instance", Reply(400, error_body(message, 400)))
    assert cli("place", "org/big-8bit") == (
        4,
        "",
        "error: cannot place org/big-8bit\n"
        "  org/big-8bit (31.2 GiB weights) does not fit: [kite1] Pipeline: kite1 short, wants "
        "~41.8 GiB = 31.2 GiB weights + 1.0 GiB KV@8192tok + overhead, has 10.0 GiB of RAM budget\n"
        "hint: smaller models:  skulkctl models --sort size\n"
        f"hint: free memory:  skulkctl delete 7f3c2a10   ({MODEL}, 696.0 MiB)\n",
    )


def test_hints_of_the_daemon_are_hints(cli: Cli, node: ModelNode) -> None:
    message = "it does not support tensor parallelism\nhint: skulkctl place MODEL"
    node.on("POST", "/place_instance", Reply(400, error_body(message, 400)))
    assert cli("place", "org/x") == (
        4,
        "",
        "error: cannot place org/x\n"
        "  it does not support tensor parallelism\n"
        "hint: skulkctl place MODEL\n",
    )


def test_a_cluster_that_is_still_starting_refuses_for_now(cli: Cli, node: ModelNode) -> None:
    message = f"memory info still missing for node(s) [{KITE1}]; retry shortly (waited 15s)"
    node.on("POST", "/place_instance", Reply(503, error_body(message, 503)))
    assert cli("place", "org/x") == (
        4,
        "",
        "error: cannot place org/x yet\n"
        "  memory info still missing for node(s) [kite1]\n"
        "  retry shortly (waited 15s)\n"
        "hint: try again in a few seconds\n",
    )


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Reply(404, error_body("the hub has no such model", 404)), "  the hub has no such model\n"),
        (Reply(500, "Internal Server Error", text=True), ""),
    ],
)
def test_an_unknown_model_is_not_found_and_the_nearest_is_named(
    cli: Cli, node: ModelNode, answer: Reply, why: str
) -> None:
    node.on("POST", "/place_instance", answer)
    assert cli("place", "skulk/tinyllama") == (
        3,
        "",
        f"error: no model named skulk/tinyllama\n{why}"
        f"hint: did you mean {TINY}?\n"
        "hint: skulkctl models\n"
        "hint: import one:  skulkctl model import PATH --id ORG/NAME\n",
    )
    assert cli("place", "tinny").err.splitlines()[1] == f"hint: did you mean {TINY}?"
    assert cli("place", "tinny").code == 3


def test_a_failure_with_a_known_model_stays_a_failure(cli: Cli, node: ModelNode) -> None:
    node.on("POST", "/place_instance", Reply(500, "Internal Server Error", text=True))
    assert cli("place", MODEL).code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("--sharding", "Diagonal"),
        ("--instance-meta", "Mlx"),
        ("--min-nodes", "0"),
        ("--timeout", "soon"),
    ],
)
def test_a_wish_that_makes_no_sense_is_a_usage_mistake(
    cli: Cli, node: ModelNode, arguments: tuple[str, str]
) -> None:
    accepting(node, a_state(), instance_id=INSTANCE)
    assert cli("place", MODEL, *arguments).code == 2
    assert not node.bodies("/place_instance")


def test_an_unknown_node_to_exclude_is_not_found(cli: Cli, node: ModelNode) -> None:
    assert cli("place", MODEL, "--exclude", "kite9").code == 3
    assert not node.bodies("/place_instance")


def a_plan() -> dict[str, Any]:
    return {
        "model_id": MODEL,
        "sharding": "Pipeline",
        "instance_meta": "MlxRing",
        "instance": a_state()["instances"][INSTANCE],
        "memory_delta_by_node": {KITE1: 364904448},
        "error": None,
    }


def test_a_dry_run_shows_the_plan_and_places_nothing(cli: Cli, node: ModelNode) -> None:
    node.on("GET", "/instance/previews", {"previews": [a_plan()]})
    assert cli("place", MODEL, "--dry-run", "--exclude", "kite3") == (
        0,
        f"would place {MODEL} on kite1, kite2"
        "  (Pipeline, MlxRingInstance, context 131072, plan-1269ba9450a8)\n"
        "\n"
        "RANK  NODE   LAYERS    WEIGHTS\n"
        "   0  kite1  0-8/16   348.0MiB\n"
        "   1  kite2  8-16/16         -\n",
        f"note: {MODEL} is placed already (7f3c2a10); this places another instance"
        " (--ensure keeps the one that is there)\n"
        f"hint: execute this plan:  skulkctl place {MODEL} --exclude kite3"
        " --plan plan-1269ba9450a8\n",
    )
    assert not node.bodies("/place_instance")
    assert node.seen[-1].path == (
        f"/instance/previews?model_id={MODEL.replace('/', '%2F')}&excluded_node_ids={KITE3}"
        "&need_files=true"
    )


def test_a_plan_is_carried_out_exactly_or_refused(cli: Cli, node: ModelNode) -> None:
    node.on("GET", "/instance/previews", {"previews": [a_plan()]})
    node.on("POST", "/instance", ACCEPTED)
    node.on("GET", "/state", the_states(an_empty_state(), a_state()))
    result = cli("place", MODEL, "--plan", "plan-1269ba9450a8", "--wait")
    assert (result.code, result.out) == (0, f"ready {MODEL} (7f3c2a10) on kite1, kite2\n")
    assert node.bodies("/instance") == [{"instance": a_plan()["instance"]}]
    assert not node.bodies("/place_instance")
    other = a_plan()
    shards = other["instance"]["MlxRingInstance"]["shardAssignments"]["runnerToShard"]
    shards["run-a"]["PipelineShardMetadata"]["endLayer"] = 7
    node.on("GET", "/instance/previews", {"previews": [other]})
    result = cli("place", MODEL, "--plan", "plan-1269ba9450a8")
    assert result.code == 4
    assert "the cluster has changed, or" in result.err
    assert len(node.bodies("/instance")) == 1


def test_only_means_all_others_excluded_for_a_stock_server(cli: Cli, node: ModelNode) -> None:
    accepting(node, a_state(), instance_id=INSTANCE)
    assert cli("place", MODEL, "--only", "kite1", "--only", "kite2").code == 0
    [body] = node.bodies("/place_instance")
    assert (body["excluded_nodes"], body["only_nodes"]) == ([KITE3], [KITE1, KITE2])
    assert cli("place", MODEL, "--only", "kite1", "--exclude", "kite1").code == 2
    assert cli("place", MODEL, "--only", "kite9").code == 3


def test_a_dry_run_that_cannot_work_is_refused(cli: Cli, node: ModelNode) -> None:
    failing = {**a_plan(), "instance": None, "error": "no RDMA cycle available"}
    node.on("GET", "/instance/previews", {"previews": [failing]})
    result = cli("place", MODEL, "--dry-run")
    assert (result.code, result.err) == (
        4,
        f"error: cannot place {MODEL}\n  no RDMA cycle available\n",
    )
    del node.answers[("GET", "/instance/previews")]
    assert cli("place", MODEL, "--dry-run").err.splitlines()[0] == (
        "error: this server cannot preview placements"
    )


def test_a_daemon_that_does_not_answer_may_still_place(cli: Cli, node: ModelNode) -> None:
    node.on("POST", "/place_instance", HANG)
    result = cli("place", MODEL, "--timeout", "300ms")
    assert result.code == 6
    assert "the change may still be carried out" in result.err


def test_json_has_the_instance_and_what_was_done(cli: Cli, node: ModelNode) -> None:
    accepting(node, a_state(), instance_id=INSTANCE)
    document = json.loads(cli("place", MODEL, "--wait", "-o", "json").out)
    assert (document["kind"], document["action"]) == ("Placement", "ready")
    assert (document["instance"]["id"], document["instance"]["ready"]) == (INSTANCE, "2/2")

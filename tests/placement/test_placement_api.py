"""Placing over HTTP on a node that knows a cluster: answers, refusals, previews, reservations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skulkd.api.services import Services
from skulkd.cluster.commands import NO_MASTER
from skulkd.cluster.commits import STORAGE_FULL
from skulkd.peers import PeerRefused
from skulkd.scheduling import replacement as replacement_module
from skulkd.scheduling.replacement import Replacement
from skulkd.wire.base import Memory
from skulkd.wire.events import RunnerStatusUpdated
from skulkd.wire.ids import ModelId, NodeId, RunnerId
from skulkd.wire.machine import MetalLimits
from skulkd.wire.placement import PlacementPreviewResponse
from skulkd.wire.rdma import NodeRdma, ThunderboltPort
from skulkd.wire.runners import MEMORY_GUARD, RunnerFailed, RunnerReady
from skulkd.worker import options as worker_settings
from tests.placement.a_cluster import MODEL, OWN, Client, asked, read, some_cluster
from tests.placement.builders import GIB, a_card, memory_of

EVERYONE = [OWN, "b", "c"]


@pytest.fixture
def node(tmp_path: Path) -> Services:
    return some_cluster(tmp_path, ["b", "c"])


@pytest.fixture
async def client(node: Services) -> AsyncIterator[Client]:
    async with asked(node) as client:
        yield client


async def keep(node: Services, model_id: str, gib: float, **changes: Any) -> str:
    card = a_card(gib, model_id=ModelId(model_id), **changes)
    await node.models.save_card(card)
    return model_id


async def place(client: Client, model: str, **body: Any) -> tuple[int, Any]:
    return await client.ask("POST", "/place_instance", {"model_id": model, **body})


def nodes_of(node: Services, instance_id: str) -> list[str]:
    instance = {str(key): value for key, value in node.replica.state.instances.items()}[instance_id]
    return list(instance.shard_assignments.node_to_runner)


async def test_a_model_is_placed_over_the_nodes_that_were_named(
    node: Services, client: Client
) -> None:
    status, answer = await place(client, MODEL, min_nodes=2, only_nodes=["b", "c"])
    assert (status, answer["message"]) == (200, "Command received.")
    assert nodes_of(node, answer["instance_id"]) == ["b", "c"]
    status, shown = await client.ask("GET", f"/instance/{answer['instance_id']}")
    hosts = shown["MlxRingInstance"]["hostsByNode"]
    assert status == 200
    assert hosts["b"][1]["ip"] == "10.0.0.3"


async def test_an_unknown_model_is_a_404_in_the_envelope(client: Client) -> None:
    status, answer = await place(client, "skulk/tiny-lama")
    assert status == 404
    assert "did you mean skulk/tiny-llama" in answer["error"]["message"]


async def test_memory_that_was_not_read_yet_is_a_503(node: Services, client: Client) -> None:
    for name in EVERYONE:
        read(node, name, None, [], EVERYONE)
    status, answer = await place(client, MODEL)
    assert status == 503
    assert "Memory info" in answer["error"]["message"]
    assert answer["error"]["message"].endswith("(waited 0s)")


async def test_a_refusal_for_memory_has_the_arithmetic_and_the_nearest_plans(
    node: Services, client: Client
) -> None:
    await keep(node, "t/big-8bit", 40, base_model="Big")
    await keep(node, "t/big-4bit", 10, base_model="Big")
    status, answer = await place(client, "t/big-8bit")
    refusal = answer["error"]["refusal"]
    assert status == 400
    [short] = refusal["rejected"][0]["short"]
    assert short["needBytes"] == sum(short["parts"].values())
    assert short["haveBytes"] == 12 * GIB
    kinds = {found["kind"]: found["text"] for found in refusal["nearest"]}
    assert "skulkctl place t/big-4bit" in kinds["smaller"]
    assert "3 more nodes with 12.0 GiB usable" in kinds["moreNodes"]
    assert "hint: " in answer["error"]["message"]


async def test_the_instance_whose_end_would_help_is_named(node: Services, client: Client) -> None:
    await keep(node, "t/eight", 8)
    placed = [await place(client, "t/eight", only_nodes=[name]) for name in ("b", "c")]
    status, answer = await place(client, "t/eight")
    assert [found[0] for found in placed] == [200, 200]
    assert status == 400
    kinds = {found["kind"]: found["text"] for found in answer["error"]["refusal"]["nearest"]}
    ids = [found[1]["instance_id"][:8] for found in placed]
    assert any(f"skulkctl delete {short}" in kinds["delete"] for short in ids)


async def test_orders_that_come_together_never_get_the_same_memory(
    node: Services, client: Client
) -> None:
    await keep(node, "t/seven", 7)
    answers = await asyncio.gather(*(place(client, "t/seven") for _ in range(8)))
    assert sorted(status for status, _ in answers) == [200, 200] + [400] * 6
    used = [nodes_of(node, answer["instance_id"]) for status, answer in answers if status == 200]
    assert sorted(used) == [["b"], ["c"]], "this node has no files of it"


async def test_memory_of_a_deleted_model_counts_before_it_is_read_again(
    node: Services, client: Client
) -> None:
    await keep(node, "t/eight", 8)
    only = {"only_nodes": ["b"]}
    _, first = await place(client, "t/eight", **only)
    instance = next(iter(node.replica.state.instances.values()))
    for runner_id in instance.shard_assignments.runner_to_shard:
        status = RunnerStatusUpdated(runner_id=RunnerId(runner_id), runner_status=RunnerReady())
        node.journal.append(status)
    read(node, "b", memory_of(16, 2), [OWN, "c"], EVERYONE)
    assert (await place(client, "t/eight", **only))[0] == 400
    await client.ask("DELETE", f"/instance/{first['instance_id']}")
    query = "/instance/previews?model_id=t/eight&only_node_ids=b"
    _, preview = await client.ask("GET", query)
    assert preview["previews"][0]["instance"] is not None, "the dry run counts it, too"
    assert (await place(client, "t/eight", **only))[0] == 200
    assert (await place(client, "t/eight", **only))[0] == 400, "and counts it once"


@pytest.mark.parametrize(("build", "said"), [("cpu", "auto"), ("cuda", "off")])
async def test_a_node_says_whether_it_unpacks_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: str, said: str
) -> None:
    monkeypatch.setattr(worker_settings, "mlx_build", lambda: build)
    facts = await some_cluster(tmp_path).placements.node_facts(MODEL)
    assert [one.dequantize for one in facts.values()] == [said]


async def test_previews_say_what_would_really_be(client: Client) -> None:
    status, answer = await client.ask("GET", f"/instance/previews?model_id={MODEL}")
    rows = PlacementPreviewResponse.model_validate(answer).previews
    assert status == 200
    told = [(row.sharding, row.instance_meta, row.error is None) for row in rows]
    assert told == [
        ("Pipeline", "MlxRing", True), ("Pipeline", "MlxRing", True), ("Pipeline", "MlxRing", True),
        ("Pipeline", "MlxJaccl", True),
        ("Tensor", "MlxRing", True), ("Tensor", "MlxRing", True),
        ("Tensor", "MlxJaccl", True),
    ]  # fmt: skip
    alone = rows[4]
    assert (alone.effective_sharding, alone.effective_instance_meta) == ("Pipeline", "MlxRing")
    pair = rows[1]
    assert pair.need_by_node is not None
    assert pair.memory_delta_by_node is not None
    for name, need in pair.need_by_node.items():
        assert need.weights_bytes == pair.memory_delta_by_node[name]
        parts = need.weights_bytes + need.overhead_bytes + need.kv_bytes + need.floor_bytes
        assert parts == need.total_bytes < need.usable_bytes
    assert pair.context_token_limit == 4096


async def test_previews_keep_to_the_nodes_and_exclusions_of_the_query(client: Client) -> None:
    query = f"model_id={MODEL}&node_ids=b&node_ids=c&excluded_node_ids={OWN}"
    _, answer = await client.ask("GET", f"/instance/previews?{query}")
    row = answer["previews"][0]["instance"]["MlxRingInstance"]
    assert list(row["shardAssignments"]["nodeToRunner"]) == ["b", "c"]
    assert [r for r in answer["previews"] if r["sharding"] == "Pipeline"][1]["error"]


async def test_previews_of_an_unknown_model_are_the_400_of_the_contract(client: Client) -> None:
    status, answer = await client.ask("GET", "/instance/previews?model_id=no/thing")
    assert status == 400
    assert answer["error"]["message"].startswith("Failed to load model card: ")


async def test_the_runbooks_preview_works_without_files_and_network(client: Client) -> None:
    path = "/instance/previews?model_id=mlx-community/Qwen3.5-9B-4bit"
    status, answer = await client.ask("GET", path)
    assert status == 200
    assert [row for row in answer["previews"] if row["instance"] is not None]
    _, strict = await client.ask("GET", f"{path}&need_files=true&only_node_ids={OWN}")
    assert "has no files" in strict["previews"][0]["error"]


async def test_ensure_places_once_however_often_it_is_asked(node: Services, client: Client) -> None:
    path = "/place_instance?ensure=true"
    answers = await asyncio.gather(
        *(client.ask("POST", path, {"model_id": MODEL}) for _ in range(5))
    )
    assert {status for status, _ in answers} == {200}
    assert len({answer["instance_id"] for _, answer in answers}) == 1
    assert len(node.replica.state.instances) == 1
    _, other = await client.ask("POST", "/place_instance", {"model_id": MODEL})
    assert len(node.replica.state.instances) == 2
    assert other["instance_id"] != answers[0][1]["instance_id"]


async def test_a_preview_can_be_posted_as_it_is(node: Services, client: Client) -> None:
    _, answer = await client.ask("GET", f"/instance/previews?model_id={MODEL}")
    wanted = answer["previews"][1]["instance"]
    status, made = await client.ask("POST", "/instance", {"instance": wanted})
    assert status == 200, made
    assert len(nodes_of(node, made["instance_id"])) == 2
    status, _ = await client.ask("POST", "/instance", {"instance": wanted})
    assert status == 409


async def test_the_placement_that_would_be_made_is_shown_bare(client: Client) -> None:
    status, shown = await client.ask("GET", f"/instance/placement?model_id={MODEL}&min_nodes=3")
    assert status == 200
    assert len(shown["MlxRingInstance"]["hostsByNode"]) == 3
    status, answer = await client.ask("GET", f"/instance/placement?model_id={MODEL}&min_nodes=4")
    assert (status, answer["error"]["code"]) == (400, 400)


def _broken(instance: dict[str, Any], what: str) -> Any:
    body = instance["MlxRingInstance"]
    assignments = body["shardAssignments"]
    shards = [next(iter(tagged.values())) for tagged in assignments["runnerToShard"].values()]
    match what:
        case "no shards":
            assignments["runnerToShard"] = {}
            assignments["nodeToRunner"] = {}
        case "a runner without node":
            assignments["nodeToRunner"].popitem()
        case "two ranks alike":
            shards[1]["deviceRank"] = 0
        case "world size":
            shards[0]["worldSize"] = 7
        case "another model":
            assignments["modelId"] = "some/other"
        case "a gap in the layers":
            shards[0]["endLayer"] -= 1
        case "other layers":
            shards[0]["nLayers"] = 99
        case "no addresses":
            body["hostsByNode"] = {}
    return {"instance": instance}


@pytest.mark.parametrize(
    "what",
    ["no shards", "a runner without node", "two ranks alike", "world size", "another model",
     "a gap in the layers", "other layers", "no addresses"],
)  # fmt: skip
async def test_an_instance_that_cannot_be_carried_out_is_refused(
    node: Services, client: Client, what: str
) -> None:
    _, answer = await client.ask("GET", f"/instance/previews?model_id={MODEL}")
    body = _broken(answer["previews"][1]["instance"], what)
    status, refused = await client.ask("POST", "/instance", body)
    assert (status, refused["error"]["refusal"]["kind"]) == (400, "BadInstance")
    assert node.replica.state.instances == {}


async def test_an_instance_that_does_not_fit_is_refused_with_arithmetic(
    node: Services, client: Client
) -> None:
    _, answer = await client.ask("GET", f"/instance/previews?model_id={MODEL}")
    for name in EVERYONE:
        read(node, name, memory_of(16, 0.2), [], EVERYONE)
    body = {"instance": answer["previews"][0]["instance"]}
    status, refused = await client.ask("POST", "/instance", body)
    assert (status, refused["error"]["refusal"]["kind"]) == (400, "DoesNotFit")


async def test_an_instance_that_is_not_there_cannot_be_deleted(client: Client) -> None:
    status, answer = await client.ask("DELETE", "/instance/nothing")
    assert (status, answer["error"]["message"]) == (404, "Instance not found")


async def test_an_instance_without_room_is_placed_wider_and_one_that_fits_nowhere_stays(
    node: Services, client: Client
) -> None:
    replacement = Replacement(node.placements, node.replica, node.journal, lambda: True)
    _, answer = await place(client, MODEL)
    widths = []
    for _ in range(3):
        instance = next(iter(node.replica.state.instances.values()))
        runners = instance.shard_assignments.runner_to_shard
        widths.append(len(runners))
        failed = RunnerFailed(error_message=f"{MEMORY_GUARD}: somebody took it")
        failure = RunnerStatusUpdated(runner_id=next(iter(runners)), runner_status=failed)
        node.journal.append(failure)
        if replacement.task is not None:
            await replacement.task
    assert widths == [1, 2, 3]
    # The same failure with other figures is not refused a second time.
    failed = RunnerFailed(error_message=f"{MEMORY_GUARD}: somebody took more")
    node.journal.append(failure.model_copy(update={"runner_status": failed}))
    if replacement.task is not None:
        await replacement.task
    assert sorted(nodes_of(node, answer["instance_id"])) == ["b", "c", OWN], "it stays, failed"
    kinds = [type(entry).__name__ for entry in node.events.between(0, len(node.events))]
    assert kinds.count("InstanceCreated") == 3
    assert kinds.count("InstanceDeleted") == 2
    _, reference = await client.ask("GET", "/events")
    assert not {"InstanceMoved", "InstanceMoveRefused"} & {key for one in reference for key in one}
    assert sum("InstanceCreated" in one for one in reference) == 3
    status, lines = await client.ask("GET", "/v1/events")
    log = [line["event"] for line in lines]
    moves = [event["InstanceMoved"] for event in log if "InstanceMoved" in event]
    assert status == 200
    assert [(move["attempt"], move["most"]) for move in moves] == [(1, 3), (2, 3)]
    assert [len(move["to_nodes"]) for move in moves] == [2, 3]
    assert all(f"-name: {MEMORY_GUARD}: somebody took it" in move["reason"] for move in moves)
    [refused] = [event["InstanceMoveRefused"] for event in log if "InstanceMoveRefused" in event]
    assert (refused["refusal"], refused["attempt"], refused["most"]) == ("TooFewNodes", 3, 3)
    status, answer = await client.ask("GET", "/v1/placements")
    [row] = answer["placements"]
    assert (status, len(row["record"]["moves"])) == (200, 2)
    assert row["record"]["stuck"] == refused["why_not"]


async def test_a_move_keeps_to_the_nodes_that_the_order_allowed(
    node: Services, client: Client
) -> None:
    replacement = Replacement(node.placements, node.replica, node.journal, lambda: True)
    _, answer = await place(client, MODEL, excluded_nodes=["c"])
    instance = next(iter(node.replica.state.instances.values()))
    failed = RunnerFailed(error_message=f"not started: {MEMORY_GUARD}: somebody took it")
    runner_id = next(iter(instance.shard_assignments.runner_to_shard))
    node.journal.append(RunnerStatusUpdated(runner_id=runner_id, runner_status=failed))
    assert replacement.task is not None
    await replacement.task
    assert sorted(nodes_of(node, answer["instance_id"])) == ["b", OWN]


async def test_a_move_that_could_not_be_written_is_tried_again(
    node: Services, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replacement_module, "RETRY_S", 0.01)
    Replacement(node.placements, node.replica, node.journal, lambda: True)
    _, answer = await place(client, MODEL)
    decide, refusals = node.placements._send, 0

    async def full_once(kind: str, body: bytes, deadline_s: float) -> bytes:
        nonlocal refusals
        if not refusals:
            refusals += 1
            raise PeerRefused(OWN, STORAGE_FULL, "no space", b"{}")
        return await decide(kind, body, deadline_s)

    monkeypatch.setattr(node.placements, "_send", full_once)
    instance = next(iter(node.replica.state.instances.values()))
    runner_id = next(iter(instance.shard_assignments.runner_to_shard))
    failed = RunnerFailed(error_message=f"{MEMORY_GUARD}: somebody took it")
    node.journal.append(RunnerStatusUpdated(runner_id=runner_id, runner_status=failed))
    async with asyncio.timeout(20):
        while len(nodes_of(node, answer["instance_id"])) == 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    _, log = await client.ask("GET", "/events")
    assert not any("InstanceMoveRefused" in event for event in log)


async def test_what_the_master_refused_elsewhere_keeps_its_kind_words_and_hints(
    node: Services, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b'{"hints": ["do this"], "data": {"short": 1}, "pending": false}'

    async def refuse(kind: str, body: bytes, deadline_s: float) -> bytes:
        raise PeerRefused(NodeId("master"), "DoesNotFit", "it does not fit", data)

    monkeypatch.setattr(node.placements, "_send", refuse)
    status, answer = await place(client, MODEL)
    assert status == 400
    assert answer["error"]["message"].startswith("it does not fit\nhint: ")
    assert "do this" in answer["error"]["refusal"]["hints"]
    assert answer["error"]["refusal"]["short"] == 1


@pytest.mark.parametrize("data", [b"{}", b"not json", b"[]"])
async def test_a_cluster_without_a_master_is_a_503(
    node: Services, client: Client, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    async def refuse(kind: str, body: bytes, deadline_s: float) -> bytes:
        raise PeerRefused(NodeId("me"), NO_MASTER, "no master answered in 10 s; try again", data)

    monkeypatch.setattr(node.placements, "_send", refuse)
    for method, path, body in (
        ("POST", "/place_instance", {"model_id": MODEL}),
        ("DELETE", "/instance/some", None),
    ):
        status, answer = await client.ask(method, path, body)
        assert status == 503, path
        assert "no master answered" in answer["error"]["message"]


async def test_a_wired_limit_too_low_for_what_is_placed_is_warned_of_with_the_command(
    node: Services, client: Client
) -> None:
    status, _ = await place(client, MODEL, excluded_nodes=["b", "c"])
    assert status == 200
    readings = node.telemetry.of(OWN)
    assert readings is not None
    metal = MetalLimits(wired_limit=Memory.of(100 * 1024**2), is_default=False)
    node.telemetry.record(OWN, replace(readings, metal=metal))
    _, answer = await client.ask("GET", "/v1/cluster")
    [member] = [one for one in answer["nodes"] if one["nodeId"] == OWN]
    told = {one["message"]: one["remediation"] for one in member["warnings"]}
    [message] = [text for text in told if "the GPU may wire 0.1 GiB" in text]
    assert told[message].startswith("sudo sysctl iogpu.wired_limit_mb=2")
    _, bundle = await client.ask("GET", "/v1/diagnostics/node")
    assert any(text.startswith(message) for text in bundle["warnings"])


async def test_a_refusal_for_rdma_says_what_is_missing_on_which_node(
    node: Services, client: Client
) -> None:
    port = ThunderboltPort(receptacle="1", interface="en2", link_speed="Up to 120 Gb/s")
    states = {OWN: NodeRdma(ports=[port], switch="disabled"), "b": NodeRdma(switch="absent")}
    for name, rdma in states.items():
        readings = node.telemetry.of(NodeId(name))
        assert readings is not None
        node.telemetry.record(NodeId(name), replace(readings, rdma=rdma))
    status, answer = await place(client, MODEL, instance_meta="MlxJaccl", min_nodes=2)
    assert status == 400
    missing = {gap["node"]: gap["code"] for gap in answer["error"]["refusal"]["missing"]}
    assert missing == {OWN: "disabled", "b": "not_macos", "c": "not_read"}
    assert f"hint: on {OWN}: start it in Recovery" in answer["error"]["message"]

"""Every type of refusal, once over HTTP and once in `skulkctl`: status, data, words, exit code.

A type without a row fails the first test here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from skulkd.api.services import Services
from skulkd.placement.orders import NodeFacts
from skulkd.placement.refusals import Refusal
from skulkd.scheduling.placements import CommandRefused
from skulkd.scheduling.replacement import Replacement
from skulkd.wire.events import InstanceCreated, RunnerStatusUpdated
from skulkd.wire.ids import NodeId
from skulkd.wire.placement_record import PlacementRecord
from skulkd.wire.runners import MEMORY_GUARD, RunnerFailed
from tests.placement.a_cluster import MODEL, OWN, Client, read, some_cluster
from tests.placement.builders import memory_of
from tests.placement.conftest import Run
from tests.placement.test_placement_api import keep

EVERYONE = [OWN, "kite2", "kite3"]
DEEPSEEK = "mlx-community/DeepSeek-V3.1-8bit"
ARITHMETIC = (
    "kite2-name needs ~",
    "weights + ",
    "KV@8192tok + ",
    "headroom) but has 12.0GB usable",
)


def drain(*names: str) -> Callable[[Services], None]:
    def begin(node: Services) -> None:
        node.placements._draining = lambda: [NodeId(name) for name in names]

    return begin


def unlink(node: Services) -> None:
    for name in EVERYONE:
        read(node, name, memory_of(16), [], EVERYONE)


def only_llama(node: Services) -> None:
    """All nodes say that they compute with nothing but llama.cpp."""

    async def node_facts(_: str) -> dict[NodeId, NodeFacts]:
        return {NodeId(name): NodeFacts(backends=["llama_cpp-cpu"]) for name in EVERYONE}

    node.placements.node_facts = node_facts  # type: ignore[method-assign]


@dataclass(frozen=True)
class Row:
    """What is asked, over HTTP as a placement unless `ask` says otherwise, and what comes."""

    kind: str
    body: dict[str, Any] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)
    status: int = 400
    code: int = 4
    prepare: Callable[[Services], None] = lambda _: None


def placed(kind: str, *words: str, data: dict[str, Any] | None = None, **more: Any) -> Row:
    """A row whose body and arguments say the same."""
    body = {key: more.pop(key) for key in list(more) if key in _FLAGS or key == "model_id"}
    arguments = [str(body.get("model_id", MODEL))]
    for key, value in body.items():
        for one in value if isinstance(value, list) else [value]:
            arguments += [_FLAGS[key], str(one)] if key in _FLAGS else []
    return Row(kind, body, ("place", *arguments), words, data or {}, **more)


_FLAGS = {
    "min_nodes": "--min-nodes",
    "sharding": "--sharding",
    "instance_meta": "--instance-meta",
    "excluded_nodes": "--exclude",
    "only_nodes": "--only",
}

PLACED = [
    placed("TooFewNodes", "only 3 node(s)", "min_nodes=9 is impossible", min_nodes=9,
           data={"known": 3, "minNodes": 9}),
    placed("AllExcluded", "touch an excluded node", "3 in excluded_nodes", excluded_nodes=EVERYONE,
           data={"excluded": ["kite2", "kite3", OWN], "minNodes": 1}),
    placed("AllDraining", "kite3-name is draining", "fewer than 1 node(s)",
           prepare=drain(*EVERYONE),
           data={"minNodes": 1, "leftOut": dict.fromkeys(EVERYONE, "is draining")}),
    placed("Ineligible", "kite2-name has only mlx", "llama_cpp-cpu", model_id="t/gguf",
           data={"compatibleBackends": ["llama_cpp-cpu"]}),
    placed("SingleNodeOnly", "single node only", "2 nodes were asked for", model_id="t/gguf",
           min_nodes=2, prepare=only_llama, data={"minNodes": 2}),
    placed("NoFiles", "has no files", "skulkctl model import PATH --id t/small", model_id="t/small",
           only_nodes=[OWN], data={"modelId": "t/small"}),
    placed("NotServed", "TextToImage", model_id="t/image", data={"tasks": ["TextToImage"]}),
    placed("TensorUnsupported", "does not support tensor parallelism", "--sharding Pipeline",
           model_id="t/whole", sharding="Tensor"),
    placed("NotDivisible", "No tensor sharding found", "key-value heads 5", model_id="t/odd",
           sharding="Tensor", min_nodes=2, data={"sizes": [2]}),
    placed("PipelineUnsupported", "not supported for DeepSeek V3.1", model_id=DEEPSEEK),
    placed("TooFewLayers", "has 1 layers", "need at least 1 layer per node", model_id="t/flat",
           min_nodes=2, data={"layers": 1, "minNodes": 2}),
    placed("NoRdma", "no RDMA-connected cycles of 2", instance_meta="MlxJaccl", min_nodes=2,
           data={"minNodes": 2}),
    placed("DoesNotFit", "No candidate cycle fits t/big (200.0GB weights)", *ARITHMETIC,
           model_id="t/big", data={"modelId": "t/big", "weightsBytes": 200 * 1024**3}),
    placed("InfoPending", "cannot place", "3 nodes are known", "try again in a few seconds",
           min_nodes=2, status=503, prepare=unlink, data={"known": 3, "minNodes": 2}),
]  # fmt: skip
# How these come about is in the tests below; the last three, in test_unloading.
OTHERS = {
    "UnknownNode", "UnknownInstance", "RequiredMissing", "BadInstance", "Taken", "MovedTooOften",
    "NotOnDemand", "InstanceBusy", "RoomLater",
}  # fmt: skip


def kinds_of(refusal: type[Refusal]) -> set[str]:
    found = {refusal.__name__}
    for below in refusal.__subclasses__():
        found |= kinds_of(below)
    return found


def test_every_type_has_a_row() -> None:
    types = kinds_of(Refusal) - {Refusal.__name__, CommandRefused.__name__}
    assert types == {row.kind for row in PLACED} | OTHERS


@pytest.fixture
async def node(tmp_path: Path) -> Services:
    node = some_cluster(tmp_path / "daemon", EVERYONE[1:])
    await keep(node, "t/big", 200)
    await keep(node, "t/odd", 1, num_key_value_heads=5)
    await keep(node, "t/whole", 1, supports_tensor=False)
    await keep(node, "t/image", 1, tasks=["TextToImage"])
    await keep(node, "t/flat", 1, n_layers=1)
    await keep(node, "t/small", 1)
    await keep(node, DEEPSEEK, 1)
    gguf: Any = {"compatibleBackends": ["llama_cpp-cpu"]}
    await keep(node, "t/gguf", 1, placement=gguf)
    return node


def check(status: int, answer: Any, row_kind: str, wanted: int, data: dict[str, Any]) -> None:
    """The envelope of the contract, with the refusal beside it."""
    assert status == wanted, answer
    error = answer["error"]
    assert (error["code"], error["refusal"]["kind"]) == (wanted, row_kind)
    assert error["type"] in ("Bad Request", "Not Found", "Conflict", "Service Unavailable")
    assert {key: error["refusal"][key] for key in data} == data


@pytest.mark.parametrize("row", PLACED, ids=[row.kind for row in PLACED])
async def test_a_placement_is_refused_alike_over_http_and_in_the_cli(
    node: Services, client: Client, run: Run, row: Row
) -> None:
    row.prepare(node)
    status, answer = await client.ask("POST", "/place_instance", {"model_id": MODEL, **row.body})
    check(status, answer, row.kind, row.status, row.data)
    if row.status == 503:
        assert answer["error"]["message"].endswith("(waited 0s)")
    for dry in ((), ("--dry-run",)):
        result = await run(*row.arguments, *dry)
        assert (result.code, result.out) == (row.code, ""), result
        for word in row.words if not dry else row.words[:0]:
            assert word in answer["error"]["message"] or "GB" not in word
            # The contract writes GB for 2**30 bytes; people read GiB.
            assert re.sub(r"(?<=\d)GB", " GiB", word) in result.err
        assert "hint: " in result.err
        assert "kite2 " not in result.err.replace("kite2-name", ""), "names, not ids"
    assert node.replica.state.instances == {}


async def test_a_node_that_is_not_here(node: Services, client: Client, run: Run) -> None:
    body = {"model_id": MODEL, "only_nodes": ["ghost"]}
    status, answer = await client.ask("POST", "/place_instance", body)
    check(status, answer, "UnknownNode", 400, {"nodeIds": ["ghost"]})
    result = await run("place", MODEL, "--only", "ghost")
    assert result.code == 3
    assert "ghost" in result.err
    assert "hint: " in result.err


async def test_an_instance_that_is_not_here(node: Services, client: Client, run: Run) -> None:
    status, answer = await client.ask("DELETE", "/instance/nothing")
    check(status, answer, "UnknownInstance", 404, {})
    result = await run("delete", "nothing", "--yes")
    assert result.code == 3
    assert "no instance nothing" in result.err
    assert "hint: skulkctl instances" in result.err


async def test_a_node_that_must_be_used_and_may_not(
    node: Services, client: Client, run: Run
) -> None:
    """Only previews can ask for it; there a refusal is a row like any other."""
    drain("kite2")(node)
    path = f"/instance/previews?model_id={MODEL}&node_ids=kite2"
    status, answer = await client.ask("GET", path)
    assert status == 200
    rows = [row["refusal"] for row in answer["previews"]]
    assert {row["kind"] for row in rows} == {"RequiredMissing"}
    assert rows[0]["required"] == ["kite2"]
    assert rows[0]["leftOut"] == {"kite2": "is draining"}
    result = await run("api", "GET", path)
    assert result.code == 0
    assert "no candidate contains all required nodes: kite2" in result.out


async def test_an_instance_that_cannot_be_and_one_that_is_there(
    node: Services, client: Client, run: Run
) -> None:
    _, answer = await client.ask("GET", f"/instance/previews?model_id={MODEL}")
    good = answer["previews"][1]["instance"]
    bad = json.loads(json.dumps(good))
    bad["MlxRingInstance"]["hostsByNode"] = {}
    status, refused = await client.ask("POST", "/instance", {"instance": bad})
    check(status, refused, "BadInstance", 400, {})
    result = await run("api", "POST", "/instance", "-d", json.dumps({"instance": bad}))
    assert result.code == 4
    assert "hostsByNode needs 2 addresses" in result.err

    assert (await client.ask("POST", "/instance", {"instance": good}))[0] == 200
    status, refused = await client.ask("POST", "/instance", {"instance": good})
    check(status, refused, "Taken", 409, {})
    result = await run("api", "POST", "/instance", "-d", json.dumps({"instance": good}))
    assert result.code == 4
    assert "is there already" in result.err
    assert len(node.replica.state.instances) == 1


async def test_an_instance_that_was_moved_as_often_as_there_are_nodes(
    node: Services, client: Client, run: Run
) -> None:
    """Nobody asks for it: it is in the journal, and with the instance."""
    replacement = Replacement(node.placements, node.replica, node.journal, lambda: True)
    assert (await client.ask("POST", "/place_instance", {"model_id": MODEL}))[0] == 200
    [instance] = node.replica.state.instances.values()
    tired = instance.model_copy(update={"record": PlacementRecord(attempts=3)})
    node.journal.append(InstanceCreated(instance=tired))
    [runner] = instance.shard_assignments.runner_to_shard
    failed = RunnerFailed(error_message=f"not started: {MEMORY_GUARD}: needs 9.00 GiB")
    node.journal.append(RunnerStatusUpdated(runner_id=runner, runner_status=failed))
    assert replacement.task is not None
    await replacement.task
    _, lines = await client.ask("GET", "/v1/events?kind=InstanceMoveRefused")
    [refused] = [line["event"]["InstanceMoveRefused"] for line in lines]
    assert (refused["refusal"], refused["attempt"], refused["most"]) == ("MovedTooOften", 4, 3)
    assert "moved 3 times" in refused["why_not"]
    told = await run("events", "--kind", "InstanceMoveRefused", "-o", "wide")
    assert (told.code, told.out.count("\n")) == (0, 1)
    assert "not moved: MovedTooOften: it was moved 3 times" in told.out
    assert "needs 9.00 GiB" in told.out
    shown = await run("instances")
    assert "not moved: it was moved 3 times" in shown.out

"""`skulkctl place` and `preview` against our own planner: every refusal, by name and exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from skulkd.api.services import Services
from skulkd.placement.orders import NodeFacts
from skulkd.wire.ids import NodeId
from tests.placement.a_cluster import MODEL, OWN, Client, some_cluster
from tests.placement.conftest import Run
from tests.placement.test_placement_api import keep

EVERYONE = [OWN, "kite2", "kite3"]


@pytest.fixture
def node(tmp_path: Path) -> Services:
    return some_cluster(tmp_path / "daemon", ["kite2", "kite3"])


@pytest.mark.parametrize("flag", ["--exclude", "--only"])
async def test_a_node_that_is_not_there_is_an_error_and_not_ignored(
    client: Client, run: Run, flag: str
) -> None:
    assert (await run("place", MODEL, flag, "node-of-last-week")).code == 3
    assert (await run("preview", MODEL, flag, "node-of-last-week")).code == 3


async def test_what_a_dry_run_shows_is_what_its_plan_places(
    node: Services, client: Client, run: Run
) -> None:
    wishes = [MODEL, "--min-nodes", "2", "--exclude", "kite3"]
    dry = await run("place", *wishes, "--dry-run")
    assert dry.code == 0
    assert "NEED" in dry.out
    plan = await run("place", *wishes, "--dry-run", "-q")
    done = await run("place", MODEL, "--exclude", "kite3", "--plan", plan.out.strip())
    assert done.code == 0, done.err
    [instance] = node.replica.state.instances.values()
    assert sorted(instance.shard_assignments.node_to_runner) == ["kite2", OWN]
    stale = await run("place", MODEL, "--exclude", OWN, "--plan", plan.out.strip())
    assert stale.code == 4
    assert len(node.replica.state.instances) == 1


async def test_preview_lists_ways_needs_and_reasons(
    node: Services, client: Client, run: Run
) -> None:
    await keep(node, "t/big", 200)
    shown = await run("preview", MODEL)
    assert shown.code == 0
    assert shown.out.count("\nPipeline  MlxRing  yes") == 3
    assert "USABLE" in shown.out
    nothing = await run("preview", "t/big")
    assert nothing.code == 0
    assert "kite3-name needs ~" in nothing.out
    assert "29 more nodes with 12.0 GiB usable would be enough" in nothing.err


async def test_wide_instances_show_ranks_nodes_layers_and_context(client: Client, run: Run) -> None:
    assert (await run("place", MODEL, "--min-nodes", "2", "--exclude", OWN)).code == 0
    shown = await run("instances", "-o", "wide")
    assert "kite2-name,kite3-name" in shown.out
    assert "0-4/8,4-8/8" in shown.out
    assert "4096" in shown.out


async def test_a_deleted_instance_is_gone_and_its_id_stale(
    node: Services, client: Client, run: Run
) -> None:
    placed = await run("place", MODEL, "-q")
    short = placed.out.strip()[:8]
    assert (await run("delete", short, "--yes")).code == 0
    assert node.replica.state.instances == {}
    assert (await run("delete", short, "--yes")).code == 3
    assert (await run("wait", short)).code == 3


async def test_what_is_unpacked_is_shown_and_promised(
    node: Services, client: Client, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def node_facts(_: str) -> dict[NodeId, NodeFacts]:
        return {NodeId(name): NodeFacts(dequantize="auto") for name in EVERYONE}

    monkeypatch.setattr(node.placements, "node_facts", node_facts)
    # 12 GiB are usable; as stored it needs 2.6 GiB, so by stored size four would fit.
    model = await keep(node, "t/packed", 1, quantization="4bit", context_length=4096)
    place = ("place", model, "--only", "kite2")
    for shown in (await run(*place, "--dry-run"), await run("preview", model, "--only", "kite2")):
        assert "11.5GiB  12.0GiB  to float32 from 1.0GiB\n" in shown.out
    _, answer = await client.ask("GET", f"/instance/previews?model_id={model}&only_node_ids=kite2")
    [need] = answer["previews"][0]["need_by_node"].values()
    assert (need["unpacked_from_bytes"], need["weights_bytes"]) == (1024**3, 7635497416)
    assert "record" not in answer["previews"][0]["instance"]["MlxRingInstance"]
    assert (await run(*place)).code == 0
    [kept] = (await client.ask("GET", "/v1/placements"))[1]["placements"]
    assert kept["record"]["unpacked"] is True
    again = await run(*place)
    assert again.code == 4, "the first one has not loaded yet and was promised almost all"
    assert "kite2-name needs ~" in again.err

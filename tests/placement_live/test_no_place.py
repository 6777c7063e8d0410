"""A model whose node is gone and that fits nowhere: seen, told of, and deleted or placed again."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cluster_live.cluster import make_cluster
from tests.daemon_process import wait_until

DEADLINE_S = 300.0


def test_a_model_without_a_place_is_listed_and_can_be_deleted(tmp_path: Path) -> None:
    pair = make_cluster(tmp_path / "pair", 2)
    keeper, worker = pair.nodes
    keeper.arguments = ["--no-worker"]
    try:
        pair.start()
        pair.wait_formed()
        pair.wait_links()
        instance_id = pair.place(on=worker)
        worker.kill()

        def waiting() -> list[dict[str, object]]:
            listed = json.loads(keeper.skulkctl("instances", "-o", "json").out)["items"]
            return [item for item in listed if item["status"] == "waiting"]

        [item] = wait_until(waiting, "the model without a place", DEADLINE_S)
        assert (item["id"], item["ready"]) == (instance_id, "0/1")
        doctor = keeper.skulkctl("doctor")
        assert doctor.code == 7, doctor
        assert "skulk/tiny-llama is not placed on any node: its node is gone" in doctor.out
        gone = keeper.skulkctl("delete", instance_id[:8], "--yes", "--wait")
        assert gone.code == 0, gone
        wait_until(lambda: not waiting(), "the end of the wait", DEADLINE_S)
        assert json.loads(keeper.skulkctl("instances", "-o", "json").out)["items"] == []
    finally:
        pair.end()

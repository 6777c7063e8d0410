"""One cluster of two real daemons for this folder; tests leave nothing placed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster_live.cluster import LiveCluster, make_cluster

BROKEN = "local/never-loads"
# Each node may give 2 GiB; a model of this size needs more than half of it.
AVAILABLE_MB = "2048"
WEIGHTS_BYTES = 800 * 1024**2


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """Two nodes with the tiny model and one that never loads, so its promise stays a promise."""
    cluster = make_cluster(
        tmp_path_factory.mktemp("pair"), 2, environ={"OVERRIDE_MEMORY_MB": AVAILABLE_MB}
    )
    for node in cluster.nodes:
        add_large_model(node.home, BROKEN)
        break_model(node.home)
    try:
        cluster.start()
        cluster.wait_formed()
        cluster.wait_links()
        yield cluster
    finally:
        cluster.end()


def break_model(home: Path) -> None:
    """From now on no runner can load it."""
    file = home / "models" / BROKEN.replace("/", "--") / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["model_type"] = "no_such_architecture"
    file.write_text(json.dumps(config), encoding="utf-8")


def add_large_model(home: Path, model_id: str) -> Path:
    """The tiny model once more, with a card that says it were large."""
    models = home / "models"
    copy = models / model_id.replace("/", "--")
    shutil.copytree(models / "skulk--tiny-llama", copy)
    card = (copy / "card.toml").read_text(encoding="utf-8")
    lines = [
        f"in_bytes = {WEIGHTS_BYTES}" if line.startswith("in_bytes") else line
        for line in card.replace("skulk/tiny-llama", model_id).splitlines()
    ]
    (copy / "card.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return copy

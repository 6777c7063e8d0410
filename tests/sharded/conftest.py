"""A cluster of three real daemons that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster_live.cluster import LiveCluster, live_cluster
from tests.cluster_live.fixtures import cluster

__all__ = ["cluster", "three"]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with live_cluster(tmp_path_factory.mktemp("three"), 3) as made:
        made.wait_links()
        yield made

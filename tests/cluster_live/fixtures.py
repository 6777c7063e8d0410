"""Pytest fixtures for live clusters; other folders import `cluster` into their conftest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.cluster_live.cluster import LiveCluster, StartCluster, make_cluster
from tests.cluster_live.lan import Machine


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StartCluster]:
    """A factory of clusters; all of their daemons are gone when the test ends."""
    made: list[LiveCluster] = []

    def start(
        count: int,
        *,
        arguments: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        machines: Sequence[Machine] = (),
        config: str = "",
        wait: bool = True,
    ) -> LiveCluster:
        one = make_cluster(
            tmp_path / f"cluster{len(made)}",
            count,
            arguments=arguments,
            environ=environ,
            machines=machines,
            config=config,
        )
        made.append(one)
        one.start()
        if wait:
            one.wait_formed()
        return one

    try:
        yield start
    finally:
        for one in made:
            one.end()

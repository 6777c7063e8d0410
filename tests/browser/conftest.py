"""Live clusters for the tests of this folder."""

from __future__ import annotations

from tests.cluster_live.fixtures import cluster

__all__ = ["cluster"]

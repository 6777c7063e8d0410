"""Figures of the cluster for `/metrics`, looked up when somebody scrapes."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from skulkd.cluster.cluster import ClusterNode
from skulkd.cluster.fabric import PLANES


class ClusterCollector(Collector):
    """Members, the master, the journal, and what went over the fabric."""

    def __init__(self, cluster: ClusterNode) -> None:
        self._cluster = cluster

    def collect(self) -> Iterator[Metric]:
        core, traffic = self._cluster.core, self._cluster.fabric.traffic
        members = len(core.connected.alive())
        yield GaugeMetricFamily("skulk_cluster_members", "Nodes seen, this one included", members)
        missing = core.missing_members()
        yield GaugeMetricFamily(
            "skulk_cluster_members_lost", "Members that left without notice", len(missing)
        )
        since = GaugeMetricFamily(
            "skulk_cluster_member_lost_timestamp_seconds",
            "When this member was lost, in seconds since 1970",
            labels=["node"],
        )
        for member in missing:
            since.add_metric([member.name], member.since.timestamp())
        yield since
        yield GaugeMetricFamily(
            "skulk_cluster_master", "1 while this node leads", int(core.role == "leading")
        )
        yield GaugeMetricFamily(
            "skulk_cluster_synced", "1 while this node's state is its master's", int(core.synced)
        )
        yield CounterMetricFamily(
            "skulk_journal_events",
            "Events of this history, as far as applied",
            core.journal.head + 1,
        )
        yield GaugeMetricFamily(
            "skulk_journal_pending", "Events of this node not ordered yet", len(core.pending)
        )
        yield GaugeMetricFamily(
            "skulk_placements_waiting", "Placements without nodes", len(core.journal.unplaced)
        )
        figures = {
            "frames": (traffic.frames_in, traffic.frames_out),
            "bytes": (traffic.bytes_in, traffic.bytes_out),
        }
        for what, (arrived, left) in figures.items():
            family = CounterMetricFamily(
                f"skulk_fabric_{what}", f"{what.title()} to and from other nodes", labels=["way"]
            )
            family.add_metric(["in"], arrived)
            family.add_metric(["out"], left)
            yield family
        yield CounterMetricFamily(
            "skulk_fabric_dropped", "Frames dropped because a queue was full", traffic.dropped
        )
        failed = CounterMetricFamily(
            "skulk_fabric_failed", "Frames that could not be sent", labels=["plane"]
        )
        for plane in PLANES:
            failed.add_metric([plane], traffic.failed[plane])
        yield failed
        yield CounterMetricFamily(
            "skulk_fabric_forged", "Frames without a valid seal", traffic.forged
        )
        yield CounterMetricFamily(
            "skulk_fabric_replayed", "Frames that had come before", traffic.replayed
        )

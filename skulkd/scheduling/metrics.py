"""Prometheus metrics of models that requests load, computed at each scrape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from skulkd.scheduling.on_demand import LoadResult, OnDemandLoads
from skulkd.scheduling.unloads import Unloads
from skulkd.wire.placement_record import UnloadCause


class OnDemandCollector(Collector):
    """Loads are counted on the node that was asked, unloads on the node that decided them."""

    def __init__(self, loads: OnDemandLoads, unloads: Unloads) -> None:
        self._loads = loads
        self._unloads = unloads

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "skulk_on_demand_instances",
            "Instances in the cluster that requests have placed",
            len(self._unloads.instances()),
        )
        loads = CounterMetricFamily(
            "skulk_on_demand_loads",
            "Models that requests of this node had placed, or that could not be placed",
            labels=["result"],
        )
        for result in get_args(LoadResult):
            loads.add_metric([result], self._loads.counts[result])
        yield loads
        unloads = CounterMetricFamily(
            "skulk_on_demand_unloads", "Models that this node had unloaded", labels=["cause"]
        )
        for cause in get_args(UnloadCause):
            unloads.add_metric([cause], self._unloads.counts[cause])
        yield unloads

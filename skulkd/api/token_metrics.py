"""Figures of access tokens for `/metrics`, by name, looked up when somebody scrapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from skulkd.api.token_uses import TokenUses

MAX_NAMES = 100
OTHER = "other"
"""Label of all tokens beyond the first `MAX_NAMES`, so that series cannot grow for ever."""


class TokenCollector(Collector):
    """Of the tokens that were used on this node since it started."""

    def __init__(self, uses: TokenUses) -> None:
        self._uses = uses

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "skulk_token_requests", "Requests with an access token", labels=["token", "result"]
        )
        open_now = GaugeMetricFamily(
            "skulk_token_requests_open", "Requests being answered", labels=["token"]
        )
        results: Counter[tuple[str, str]] = Counter()
        running: Counter[str] = Counter()
        for number, use in enumerate(self._uses.all()):
            label = use.name if number < MAX_NAMES else OTHER
            running[label] += len(use.tasks)
            for result, count in use.results.items():
                results[label, result] += count
        for labels, count in sorted(results.items()):
            requests.add_metric(list(labels), count)
        for label, count in sorted(running.items()):
            open_now.add_metric([label], count)
        yield requests
        yield open_now

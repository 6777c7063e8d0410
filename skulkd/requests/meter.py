"""How long requests wait and how fast their answers come, by model. For `/metrics`.

Watches the streams of tasks, so every API family that generates text is measured alike. Knows no
HTTP and no Prometheus.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from skulkd.observe.histogram import Histogram
from skulkd.runner.protocol import Output, PrefillProgress

FIRST_TOKEN_S = (
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
)  # fmt: skip
INTER_TOKEN_S = (
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5,
)  # fmt: skip
QUEUE_S = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
MAX_MODELS = 100
OTHER = "other"
"""Label of all models beyond the first `MAX_MODELS`, which bounds the number of series."""


@dataclass(slots=True)
class ModelFigures:
    """Counted since the start of the daemon."""

    first_token: Histogram = field(default_factory=lambda: Histogram(FIRST_TOKEN_S))
    inter_token: Histogram = field(default_factory=lambda: Histogram(INTER_TOKEN_S))
    queue: Histogram = field(default_factory=lambda: Histogram(QUEUE_S))
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class RequestMeter:
    """Figures by model, of the requests that this node dispatched."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.models: dict[str, ModelFigures] = {}

    def watch(self, model: str, arrived_at: float) -> RequestWatch:
        """A watch for a request that a runner has just accepted."""
        return RequestWatch(self._figures(model), arrived_at, self._clock)

    @property
    def completion_tokens(self) -> int:
        """Of all models."""
        return sum(figures.completion_tokens for figures in self.models.values())

    def _figures(self, model: str) -> ModelFigures:
        label = model if model in self.models or len(self.models) < MAX_MODELS else OTHER
        return self.models.setdefault(label, ModelFigures())


class RequestWatch:
    """Counts the items of one request, in order."""

    def __init__(
        self, figures: ModelFigures, arrived_at: float, clock: Callable[[], float]
    ) -> None:
        self._figures = figures
        self._arrived_at = arrived_at
        self._taken_at = clock()
        self._clock = clock
        self._prompt_counted = False
        self._last_at: float | None = None

    def __call__(self, item: Output | PrefillProgress) -> None:
        if isinstance(item, PrefillProgress):
            self._count_prompt(item.total)
            return
        # Choices of one request are decoded side by side: the longest piece is the time it took.
        tokens = max((part.tokens for part in item.items), default=0)
        if tokens:
            self._count_tokens(tokens, sum(part.tokens for part in item.items))
        if item.usage is not None:
            self._count_prompt(item.usage.prompt_tokens)
            self._figures.cached_tokens += item.usage.prompt_tokens_details.cached_tokens
        if item.queued_s is not None:
            self._figures.queue.add(self._taken_at - self._arrived_at + item.queued_s)

    def _count_prompt(self, tokens: int) -> None:
        if not self._prompt_counted:
            self._prompt_counted = True
            self._figures.prompt_tokens += tokens

    def _count_tokens(self, steps: int, tokens: int) -> None:
        now, figures = self._clock(), self._figures
        if self._last_at is None:
            figures.first_token.add(now - self._arrived_at)
        else:
            # Tokens leave the runner in small packets; each has its share of the time.
            figures.inter_token.add((now - self._last_at) / steps, steps)
        self._last_at = now
        figures.completion_tokens += tokens

"""What a rank does in one decoding step: compute alone, be a stage of a pipeline, or a slice.

Every seat queues the same messages in the same order on one MLX stream, or the ring would mix
them up. Nothing here waits: results are read by whoever needs them.
"""

# MLX leaves async_eval untyped.
# mypy: allow-untyped-calls

from typing import Any, NamedTuple, Protocol

import mlx.core as mx

from skulkd.runner.pipeline import PipelinedModel
from skulkd.runner.rows import Row, choose, table_width, wants_table


class Next(NamedTuple):
    """What a step leaves for the next one. `waits` are what to wait for, with their names."""

    tokens: mx.array
    table: mx.array | None
    waits: tuple[tuple[str, Any], ...] = ()


class Seat(Protocol):
    """`knows` says whether this rank learns the tokens that are drawn."""

    knows: bool

    def launch(self, inputs: Next, caches: list[Any], rows: list[Row]) -> Next: ...

    def prefill(self, tokens: mx.array, caches: list[Any]) -> tuple[tuple[str, Any], ...]: ...


class Alone:
    """The whole model is here."""

    knows = True

    def __init__(self, model: Any) -> None:
        self._model = model

    def launch(self, inputs: Next, caches: list[Any], rows: list[Row]) -> Next:
        logits = self._model(inputs.tokens[:, None], cache=caches)[:, -1, :]
        drawn, table, loose = choose(logits, rows, inputs.tokens)
        mx.async_eval(drawn, *_present(table), *loose)
        return Next(drawn, table)

    def prefill(self, tokens: mx.array, caches: list[Any]) -> tuple[tuple[str, Any], ...]:
        self._model(tokens, cache=caches)
        return (("prompt", [cache.state for cache in caches]),)


class Slice:
    """Every rank has a part of every layer; rank 0 draws and the others hear of it."""

    knows = True

    def __init__(self, model: Any, group: mx.distributed.Group) -> None:
        self._model = model
        self._group = group

    def launch(self, inputs: Next, caches: list[Any], rows: list[Row]) -> Next:
        logits = self._model(inputs.tokens[:, None], cache=caches)[:, -1, :]
        table: mx.array | None = None
        loose: list[Any] = []
        if self._group.rank() == 0:
            drawn, table, loose = choose(logits, rows, inputs.tokens)
        else:
            # It must depend on the logits, or the layers' own sums would come after this one.
            drawn = (0 * logits[:, 0]).astype(mx.uint32)
        drawn = mx.distributed.all_sum(drawn, group=self._group)
        # What a lost rank leaves here is no token, and looking it up would crash the process.
        drawn = mx.minimum(drawn, logits.shape[-1] - 1)
        mx.async_eval(drawn, *_present(table), *loose)
        return Next(drawn, table)

    def prefill(self, tokens: mx.array, caches: list[Any]) -> tuple[tuple[str, Any], ...]:
        self._model(tokens, cache=caches)
        return (("prompt", [cache.state for cache in caches]),)


class Stage:
    """One part of a pipeline. The last stage draws; rank 0 hears of it; the middle need not."""

    def __init__(self, model: PipelinedModel, group: mx.distributed.Group) -> None:
        self._model = model
        self._group = group
        self._first = group.rank() == 0
        self._last = group.rank() == group.size() - 1
        self.knows = self._first or self._last

    def launch(self, inputs: Next, caches: list[Any], rows: list[Row]) -> Next:
        if self._first:
            # The tokens come from the last stage: their place in the order is here.
            mx.async_eval(inputs.tokens)
            if inputs.table is not None:
                mx.async_eval(inputs.table)
        logits = self._model(inputs.tokens[:, None], caches)
        waits = self._passed_on(caches)
        if self._last:
            drawn, table, loose = choose(logits[:, -1, :], rows, inputs.tokens)
            drawn = mx.distributed.send(drawn, 0, group=self._group)
            mx.async_eval(drawn, *loose)
            if table is not None:
                table = mx.distributed.send(table, 0, group=self._group)
                mx.async_eval(table)
            return Next(drawn, table, (*waits, ("pipeline_last_eval_output", drawn)))
        if not self._first:
            return Next(inputs.tokens, None, waits)
        last, size = self._group.size() - 1, len(rows)
        drawn = mx.distributed.recv((size,), mx.uint32, last, group=self._group)
        # What a lost rank leaves here is no token, and looking it up would crash the process.
        drawn = mx.minimum(drawn, self._model.vocabulary - 1)
        table = None
        if wants_table(rows):
            shape = (size, table_width(self._model.vocabulary))
            table = mx.distributed.recv(shape, mx.float32, last, group=self._group)
        return Next(drawn, table, waits)

    def prefill(self, tokens: mx.array, caches: list[Any]) -> tuple[tuple[str, Any], ...]:
        self._model(tokens, caches)
        waits = self._passed_on(caches)
        if not self._last:
            return waits
        states = [cache.state for cache in caches]
        return (*waits, ("pipeline_last_eval_output", states))

    def _passed_on(self, caches: list[Any]) -> tuple[tuple[str, Any], ...]:
        """Queue what comes from the stage before and what goes to the stage after."""
        waits: list[tuple[str, Any]] = []
        link = self._model.link
        if link.received is not None:
            mx.async_eval(link.received)
            waits.append(("pipeline_first_eval_recv", link.received))
        if link.sent is not None:
            mx.async_eval(link.sent, self._model.markers(caches))
            waits.append(("pipeline_last_eval_output", link.sent))
        return tuple(waits)


def _present(table: mx.array | None) -> list[mx.array]:
    return [] if table is None else [table]

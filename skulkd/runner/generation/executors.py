"""What a rank computes in one step: all layers, or one stage of a pipeline.

Every rank queues the same messages in the same order on one MLX stream, or the ring would mix
them up. Nothing here waits: whoever needs a result evaluates it.
"""

# MLX leaves async_eval untyped.
# mypy: allow-untyped-calls

from typing import Any, NamedTuple, Protocol

import mlx.core as mx

from skulkd.runner.generation.rows import Row, needs_logprobs, sample_rows, table_width
from skulkd.runner.model.sharding import PipelinedModel

Waits = tuple[tuple[str, Any], ...]
"""Arrays to wait for, with the names under which the recorder shows the wait."""


class StepResult(NamedTuple):
    """The tokens that a step sampled, which are the input of the next one."""

    tokens: mx.array
    table: mx.array | None
    """A line of log probabilities per row, see `sample_rows`."""
    waits: Waits = ()


class Executor(Protocol):
    sees_tokens: bool
    """Whether this rank gets the sampled tokens."""

    def decode(self, inputs: StepResult, caches: list[Any], rows: list[Row]) -> StepResult: ...

    def prefill(self, tokens: mx.array, caches: list[Any]) -> Waits: ...


class LayersExecutor:
    """All layers are computed here; in a group, this rank's slice of each. Rank 0 samples."""

    sees_tokens = True

    def __init__(self, model: Any, group: mx.distributed.Group | None = None) -> None:
        self._model = model
        self._group = group
        self._samples = group is None or group.rank() == 0

    def decode(self, inputs: StepResult, caches: list[Any], rows: list[Row]) -> StepResult:
        logits = self._model(inputs.tokens[:, None], cache=caches)[:, -1, :]
        table: mx.array | None = None
        states: list[Any] = []
        if self._samples:
            tokens, table, states = sample_rows(logits, rows, inputs.tokens)
        else:
            # It must depend on the logits, or the layers' own sums would come after this one.
            tokens = (0 * logits[:, 0]).astype(mx.uint32)
        if self._group is not None:
            tokens = _checked(mx.distributed.all_sum(tokens, group=self._group), logits.shape[-1])
        mx.async_eval(tokens, *([] if table is None else [table]), *states)
        return StepResult(tokens, table)

    def prefill(self, tokens: mx.array, caches: list[Any]) -> Waits:
        self._model(tokens, cache=caches)
        return (("prompt", [cache.state for cache in caches]),)


class StageExecutor:
    """One stage of a pipeline. The last stage samples and sends the tokens to the first."""

    def __init__(self, model: PipelinedModel, group: mx.distributed.Group) -> None:
        self._model = model
        self._group = group
        self._first = group.rank() == 0
        self._last = group.rank() == group.size() - 1
        self.sees_tokens = self._first or self._last

    def decode(self, inputs: StepResult, caches: list[Any], rows: list[Row]) -> StepResult:
        if self._first:
            # The tokens come from the last stage: their place in the order is here.
            mx.async_eval(inputs.tokens)
            if inputs.table is not None:
                mx.async_eval(inputs.table)
        logits = self._model(inputs.tokens[:, None], caches)
        waits = self._queue_messages(caches)
        if self._last:
            return self._send_tokens(logits[:, -1, :], rows, inputs, waits)
        if not self._first:
            return StepResult(inputs.tokens, None, waits)
        return self._receive_tokens(rows, waits)

    def prefill(self, tokens: mx.array, caches: list[Any]) -> Waits:
        self._model(tokens, caches)
        waits = self._queue_messages(caches)
        if not self._last:
            return waits
        states = [cache.state for cache in caches]
        return (*waits, ("pipeline_last_eval_output", states))

    def _send_tokens(
        self, logits: mx.array, rows: list[Row], inputs: StepResult, waits: Waits
    ) -> StepResult:
        tokens, table, states = sample_rows(logits, rows, inputs.tokens)
        tokens = mx.distributed.send(tokens, 0, group=self._group)
        mx.async_eval(tokens, *states)
        if table is not None:
            table = mx.distributed.send(table, 0, group=self._group)
            mx.async_eval(table)
        return StepResult(tokens, table, (*waits, ("pipeline_last_eval_output", tokens)))

    def _receive_tokens(self, rows: list[Row], waits: Waits) -> StepResult:
        last, count = self._group.size() - 1, len(rows)
        tokens = mx.distributed.recv((count,), mx.uint32, last, group=self._group)
        table = None
        if needs_logprobs(rows):
            shape = (count, table_width(self._model.vocabulary))
            table = mx.distributed.recv(shape, mx.float32, last, group=self._group)
        return StepResult(_checked(tokens, self._model.vocabulary), table, waits)

    def _queue_messages(self, caches: list[Any]) -> Waits:
        """Queue what comes from the stage before and what goes to the stage after."""
        waits: list[tuple[str, Any]] = []
        link = self._model.link
        if link.received is not None:
            mx.async_eval(link.received)
            waits.append(("pipeline_first_eval_recv", link.received))
        if link.sent is not None:
            mx.async_eval(link.sent, self._model.counting_states(caches))
            waits.append(("pipeline_last_eval_output", link.sent))
        return tuple(waits)


def _checked(tokens: mx.array, vocabulary: int) -> mx.array:
    """A lost rank leaves numbers that are no tokens; looking those up would crash the process."""
    return mx.minimum(tokens, vocabulary - 1)


def executor_for(model: Any, group: mx.distributed.Group | None) -> Executor:
    if group is not None and isinstance(model, PipelinedModel):
        return StageExecutor(model, group)
    return LayersExecutor(model, group)

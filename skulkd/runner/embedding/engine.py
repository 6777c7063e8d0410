"""The engine of an embedding model: inputs of all open requests share the steps of one batch.

A group of one rank, so its orders are steps or sleep. Knows nothing of pipes or of the runner's
lifecycle.
"""

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

from skulkd.runner.embedding.batching import Row, RowQueue
from skulkd.runner.embedding.load import EmbeddingModel
from skulkd.runner.errors import BadRequest
from skulkd.runner.faults import Faults
from skulkd.runner.group.orders import Order
from skulkd.runner.protocol import (
    EmbeddingItem,
    FromRunner,
    GenerationOptions,
    Output,
    TaskStatus,
)
from skulkd.runner.recording.recorder import Owner, PhaseRecorder
from skulkd.runner.recording.tracing import EMBEDDING, Tracer
from skulkd.wire.chat import CompletionTokensDetails, PromptTokensDetails, Usage
from skulkd.wire.ids import TaskId
from skulkd.wire.tasks import ServedTask, TextEmbedding

_WARMUP_TEXT = "hello " * 32
_PAD = 0


@dataclass(slots=True)
class _OpenTask:
    owner: Owner
    dimensions: int | None
    tokens: int
    rows_left: int
    accepted_at: float = field(default_factory=time.monotonic)
    queued_s: float | None = None


class EmbeddingEngine:
    """`send` takes output and task statuses; it may wait for the pipe only."""

    def __init__(
        self,
        model: EmbeddingModel,
        recorder: PhaseRecorder,
        send: Callable[[FromRunner], None],
        faults: Faults,
    ) -> None:
        self._model = model
        self._recorder = recorder
        self._send = send
        self._faults = faults
        self._tracer = Tracer(recorder.context, send, kind=EMBEDDING)
        recorder.listener = self._tracer.observe
        self._queue = RowQueue()
        self._open: dict[TaskId, _OpenTask] = {}
        self._cancelled: set[TaskId] = set()
        self._steps = 0

    # --- for the session ---

    @property
    def tasks(self) -> list[TaskId]:
        """Everything accepted and not yet answered."""
        return list(self._open)

    @property
    def busy(self) -> bool:
        return bool(self._open)

    def holds(self, task_id: TaskId) -> bool:
        return task_id in self._open

    def serves(self, task: ServedTask) -> bool:
        return isinstance(task, TextEmbedding)

    def warm_up(self) -> int:
        """A first step, so that no client waits for one-time work. How many tokens it had."""
        [tokens] = self._model.tokenizer.encode([_WARMUP_TEXT], truncate=True)
        mx.eval(self._forward([tokens])[0])
        return len(tokens)

    def accept(self, task: ServedTask, _extra: GenerationOptions) -> None:
        """Queue a request. Raises BadRequest; nothing was computed for it then."""
        if not isinstance(task, TextEmbedding):
            raise BadRequest("this model makes embeddings and generates no text")
        if not self._open:
            mx.reset_peak_memory()
        owner, params = Owner(task.task_id, task.command_id), task.task_params
        if task.trace_enabled:
            self._tracer.start(task.task_id)
        span = self._recorder.enter(
            "prompt_build", "embedding_tokenize", owner=owner, inputs=len(params.input)
        )
        try:
            inputs = self._model.tokenizer.encode(params.input, truncate=params.truncate)
        except BadRequest:
            self._recorder.abandon(span)
            self._tracer.finish(task.task_id, "error")
            raise
        self._recorder.leave(span)
        tokens = sum(map(len, inputs))
        self._open[task.task_id] = _OpenTask(owner, params.dimensions, tokens, len(inputs))
        self._queue.add(task.task_id, inputs)
        self._recorder.point(
            "task_submission", "batch_queue_admitted", owner=owner,
            inputs=len(inputs), tokens=tokens, batch_size=len(self._open) - 1,
        )  # fmt: skip

    def cancel(self, task_id: TaskId) -> bool:
        """Whether the task is here; it ends before the next step."""
        if task_id in self._open:
            self._cancelled.add(task_id)
        return task_id in self._open

    def next_order(self) -> Order:
        if self._cancelled:
            cancelled, self._cancelled = tuple(self._cancelled), set()
            return Order(cancel=cancelled)
        return Order(lane=0) if self._queue else Order(sleep=True)

    def follow(self, order: Order, _fetch: Callable[[TaskId], None]) -> None:
        """Carry out an order of its own."""
        for task_id in order.cancel:
            self._drop(task_id)
        if order.lane is not None:
            self._step(self._queue.pop_batch())

    def close(self) -> None:
        """Open requests get no more output."""
        self._queue = RowQueue()
        self._open.clear()

    def abort(self, reason: str) -> None:
        """The runner is about to end: send the traces as they are."""
        self._tracer.abort(reason)

    def _drop(self, task_id: TaskId) -> None:
        """A cancelled task, unless it has been answered meanwhile."""
        task = self._open.pop(task_id, None)
        if task is None:
            return
        self._queue.remove(task_id)
        self._recorder.point(
            "cancel_observed", "batch_cancel_applied", owner=task.owner, memory=True
        )
        self._tracer.finish(task_id, "cancel")
        self._send(TaskStatus(task_id=task_id, status="Cancelled"))

    # --- steps ---

    def _step(self, rows: list[Row]) -> None:
        self._steps += 1
        self._recorder.step = self._steps
        self._faults.stall("delay")
        now = time.monotonic()
        for row in rows:
            task = self._open[row.task_id]
            if task.queued_s is None:
                task.queued_s = now - task.accepted_at
        owner = self._open[rows[0].task_id].owner
        longest = max(len(row.tokens) for row in rows)
        began = time.monotonic()
        with self._recorder.span(
            "prefill_stream", "embedding_forward", owner=owner, memory=True,
            rows=len(rows), longest=longest, tasks=len({row.task_id for row in rows}),
        ):  # fmt: skip
            hidden, mask = self._forward([row.tokens for row in rows])
            self._eval(hidden)
        self._trace(rows, "forward", began)
        began = time.monotonic()
        with self._recorder.span("completion", "embedding_pooling", owner=owner):
            pooled = self._model.pooling.pool(hidden, mask).astype(mx.float32)
            self._eval(pooled)
        self._trace(rows, "pooling", began)
        began = time.monotonic()
        with self._recorder.span("completion", "embedding_normalization", owner=owner):
            vectors = self._vectors(rows, pooled)
        self._trace(rows, "normalization", began)
        self._write(rows, vectors)

    def _forward(self, inputs: list[list[int]]) -> tuple[mx.array, mx.array]:
        """Hidden states and mask, rows padded on the right."""
        longest = max(map(len, inputs))
        tokens = mx.array([row + [_PAD] * (longest - len(row)) for row in inputs])
        lengths = mx.array([[len(row)] for row in inputs])
        mask = (mx.arange(longest)[None] < lengths).astype(mx.float32)
        return self._model.forward(tokens, mask), mask

    def _eval(self, array: mx.array) -> None:
        with self._recorder.wait("model_eval", entry="never"):
            mx.eval(array)

    def _vectors(self, rows: list[Row], pooled: mx.array) -> list[str]:
        """In base64; requests may want different lengths."""
        wanted = [self._open[row.task_id].dimensions for row in rows]
        finished = {size: self._model.pooling.finish(pooled, size) for size in set(wanted)}
        arrays = {size: np.asarray(array, dtype="<f4") for size, array in finished.items()}
        return [
            base64.b64encode(arrays[size][at].tobytes()).decode() for at, size in enumerate(wanted)
        ]

    def _write(self, rows: list[Row], vectors: list[str]) -> None:
        items: dict[TaskId, list[EmbeddingItem]] = {}
        for row, vector in zip(rows, vectors, strict=True):
            items.setdefault(row.task_id, []).append(EmbeddingItem(index=row.index, vector=vector))
        for task_id, embeddings in items.items():
            task = self._open[task_id]
            task.rows_left -= len(embeddings)
            if task.rows_left:
                self._send(Output(task_id=task_id, embeddings=embeddings))
                continue
            usage, queued_s = _usage(task.tokens), task.queued_s
            self._send(
                Output(task_id=task_id, embeddings=embeddings, usage=usage, queued_s=queued_s)
            )
            del self._open[task_id]
            self._recorder.point(
                "completion",
                "embedding_complete",
                owner=task.owner,
                memory=True,
                tokens=task.tokens,
            )
            self._tracer.finish(task_id, "finish")
            self._send(TaskStatus(task_id=task_id, status="Complete"))

    def _trace(self, rows: list[Row], name: str, began: float) -> None:
        if self._tracer.active:
            self._tracer.step((row.task_id for row in rows), began, name, "embedding")


def _usage(tokens: int) -> Usage:
    return Usage(
        prompt_tokens=tokens,
        completion_tokens=0,
        total_tokens=tokens,
        prompt_tokens_details=PromptTokensDetails(),
        completion_tokens_details=CompletionTokensDetails(),
    )

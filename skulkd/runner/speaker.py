"""What rank 0 says to clients: text in pieces, the last one with counts and speeds.

A piece per token would cost more than the token on a small model, so tokens leave together, at
most a blink later than they came.
"""

import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from skulkd.runner.answers import AnswerWriter
from skulkd.runner.phases import PhaseRecorder
from skulkd.runner.protocol import FromRunner, Output, PrefillProgress
from skulkd.runner.request import Choice, Request
from skulkd.runner.rows import Drawn
from skulkd.runner.usage import stats_of, usage_of

EVERY_S = 0.016


class Speaker:
    def __init__(
        self,
        tokenizer: Any,
        recorder: PhaseRecorder,
        send: Callable[[FromRunner], None],
        *,
        serving_batches: bool,
    ) -> None:
        self._serving_batches = serving_batches
        self._writer = AnswerWriter(tokenizer, recorder)
        self._send = send
        self._unsaid: dict[int, Request] = {}
        self._read: set[int] = set()
        self._said_at = 0.0

    def prompt_read(self, request: Request) -> None:
        """Said with the first token, which is only a step away: who waits is woken once."""
        self._read.add(id(request))

    def write(self, request: Request, choice: Choice, drawn: Drawn) -> None:
        """Add a token to an answer; it is said with the next `flush`."""
        self._writer.token(request, choice, drawn)
        self._unsaid[id(request)] = request

    def flush(self, now: float | None = None, *, hurry: bool = True) -> None:
        """Say what is written, if it is time or there is a hurry."""
        now = time.monotonic() if now is None else now
        if not self._unsaid or not (hurry or now - self._said_at >= EVERY_S):
            return
        self._said_at = now
        for request in self._unsaid.values():
            self._say_prompt_read(request)
            items = [item for one in request.choices if (item := self._writer.item(one))]
            if items:
                self._send(Output(task_id=request.task_id, items=items))
        self._unsaid.clear()

    def conclude(self, request: Request) -> None:
        """Say the rest of an answer that is complete."""
        self._unsaid.pop(id(request), None)
        self._say_prompt_read(request)
        self._send(
            Output(
                task_id=request.task_id,
                items=[item for one in request.choices if (item := self._writer.item(one))],
                usage=usage_of(request),
                stats=stats_of(
                    request, mx.get_peak_memory(), serving_batches=self._serving_batches
                ),
                queued_s=request.admitted_at - request.accepted_at,
            )
        )

    def forget(self, request: Request) -> None:
        """Nobody listens to this answer any more."""
        self._unsaid.pop(id(request), None)
        self._read.discard(id(request))

    def _say_prompt_read(self, request: Request) -> None:
        if id(request) in self._read:
            self._read.remove(id(request))
            total = len(request.prompt)
            self._send(PrefillProgress(task_id=request.task_id, processed=total, total=total))

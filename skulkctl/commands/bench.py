"""`skulkctl bench`: a load curve of a placed model."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Invocation, Output, Reach, Table, duration, new_app, values, verb
from skulkctl.errors import CliError, ProblemFound, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

if TYPE_CHECKING:
    from skulkctl.chat.load_curve import Sample, StepItem
    from skulkctl.output.progress import Progress
    from skulkd.wire.chat import ChatCompletionRequest

app = new_app()

STEP_S = 30.0
REQUEST_S = 600.0
MOST_CLIENTS = 1024
_PROMPT = "Write a short story about fox number {number} and what it finds in the snow."

EXAMPLES = """
  skulkctl bench SmolLM2
  skulkctl bench SmolLM2 --concurrency 1,2,4,8,16 --requests 32
  skulkctl bench SmolLM2 --max-tokens 16 --time 10s -o json | jq '.items[].tokensPerSecond'
"""


def clients_of(typed: str) -> list[int]:
    """The numbers of `1,2,4,8`. Raises UsageMistake."""
    parts = [part.strip() for part in typed.split(",")]
    found = [int(part) for part in parts if part.isdecimal() and 1 <= int(part) <= MOST_CLIENTS]
    if len(found) != len(parts):
        raise UsageMistake(
            f"--concurrency: {typed!r} is not a list of numbers from 1 to {MOST_CLIENTS}",
            hints=["for example:  --concurrency 1,2,4,8"],
        )
    return found


@verb(app, "bench", Reach, Output, Table, examples=EXAMPLES)
def bench(
    call: Invocation,
    placed: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            autocompletion=values.placed_models,
            help="Id or prefix of a placed model (default: the only placed model).",
        ),
    ] = None,
    concurrency: Annotated[
        str,
        typer.Option("--concurrency", metavar="N,N", help="Numbers of clients, one per step."),
    ] = "1,2,4,8",
    requests: Annotated[
        int,
        typer.Option(
            "--requests", metavar="N", min=1, help="Send at most N requests per client and step."
        ),
    ] = 4,
    step_s: Annotated[
        float,
        typer.Option(
            "--time", metavar="TIME", parser=duration, help="Start no request after this time."
        ),
    ] = STEP_S,
    max_tokens: Annotated[
        int,
        typer.Option("--max-tokens", metavar="N", min=1, help="Generate at most N tokens each."),
    ] = 64,
) -> int:
    """Measure a placed model under load: time to first token and tokens per second.

    Each step sends requests from more clients at the same time, and ends after its requests or its
    time. The knee is the last step whose clients brought at least 10 % more tokens per second. A
    step in which a request fails is the last one, and the exit code is 7. Ctrl-C cancels the
    requests in the cluster.
    """
    from skulkctl.chat.load_curve import CURVE, chart, with_knee
    from skulkctl.output.progress import Progress
    from skulkctl.placement.placed import choose_chat_model

    numbers = clients_of(concurrency)
    model_id = choose_chat_model(call.daemon.state(), placed)["modelId"]
    call.if_interrupted = "the requests have been cancelled"
    runs = _Runs(call, model_id, max_tokens)
    with Progress(call.quiet) as line, _stopping(runs):
        steps = with_knee(runs.curve(numbers, requests, step_s, line))
    call.show_rows(CURVE, steps)
    if call.format == "table" and call.style.room is not None:
        write(f"\n{chart(steps, call.style.room)}")
    _check(runs, model_id)
    return ExitCode.DONE


def _check(runs: _Runs, model_id: str) -> None:
    """Raises ProblemFound when a request failed."""
    if runs.problems:
        failed = f"{len(runs.problems)} of the requests to {model_id} failed"
        raise ProblemFound(failed, *dict.fromkeys(runs.problems), hints=["skulkctl instances"])


@contextmanager
def _stopping(runs: _Runs) -> Iterator[None]:
    """On Ctrl-C every request is cancelled before the command ends."""
    try:
        yield
    finally:
        runs.stop.set()
        runs.pool.shutdown()


class _Runs:
    """Requests from many threads, each with a connection of its own."""

    def __init__(self, call: Invocation, model_id: str, max_tokens: int) -> None:
        self._call, self._model_id, self._max_tokens = call, model_id, max_tokens
        self._sent = 0
        self.stop = threading.Event()
        self.pool = ThreadPoolExecutor(MOST_CLIENTS)
        self.problems: list[str] = []

    def curve(
        self, numbers: list[int], requests: int, step_s: float, line: Progress
    ) -> list[StepItem]:
        """One step for each number of clients, up to the first step with a failed request."""
        steps: list[StepItem] = []
        self.measure(1, 1, step_s, line)  # the first request also warms up
        for number in numbers:
            steps.append(self.measure(number, requests * number, step_s, line))
            if self.problems:
                break
        return steps

    def measure(self, concurrency: int, total: int, step_s: float, line: Progress) -> StepItem:
        """So many requests, as many at the same time as there are clients."""
        from skulkctl.chat.load_curve import summarise
        from skulkctl.output.progress import Part

        running: set[Future[Sample]] = set()
        samples: list[Sample] = []
        began, failed, sent = time.monotonic(), 0, 0
        while running or sent < total:
            while sent < total and len(running) < concurrency:
                running.add(self.pool.submit(self._one, self._next()))
                sent += 1
            name = f"{concurrency} client{'' if concurrency == 1 else 's'}"
            part = Part(name, "measuring", len(samples), total, "requests")
            line.show(str(concurrency), f"{part.name}: {len(samples)} of {total}", [part])
            done, running = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
            for each in done:
                try:
                    samples.append(each.result())
                except CliError as error:
                    failed += 1
                    self.problems.append("; ".join(error.why) or error.what)
            if failed or time.monotonic() - began > step_s:
                total = sent
        return summarise(concurrency, samples, failed, time.monotonic() - began)

    def _next(self) -> ChatCompletionRequest:
        """No two prompts are the same, so that none is answered from what is remembered."""
        from skulkd.wire.chat import ChatCompletionMessage, ChatCompletionRequest

        self._sent += 1
        text = _PROMPT.format(number=self._sent)
        return ChatCompletionRequest(
            model=self._model_id,
            messages=[ChatCompletionMessage(role="user", content=text)],
            max_tokens=self._max_tokens,
            temperature=0,
            stream=True,
        )

    def _one(self, request: ChatCompletionRequest) -> Sample:
        from skulkctl.chat.generation import ReaderGone, generate
        from skulkctl.chat.load_curve import Sample
        from skulkctl.chat.reply import Reply

        def check(_: object) -> None:
            if self.stop.is_set():
                raise ReaderGone

        reply, daemon = Reply(self._model_id), self._call.new_daemon()
        try:
            generate(daemon, request, reply, check, self._call.timeout_s(REQUEST_S))
        except ReaderGone:
            raise CliError("cancelled") from None
        finally:
            daemon.close()
        seconds = reply.seconds or 0.0
        first_s = seconds if reply.first_piece_s is None else reply.first_piece_s
        return Sample(first_s, seconds, reply.tokens or len(reply.pieces))

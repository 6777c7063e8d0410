"""One sequence of the batch: its tokens and how its next one is chosen."""

# mlx-lm leaves its buffers untyped.
# mypy: allow-untyped-calls

from dataclasses import dataclass
from typing import Any, NamedTuple

import mlx.core as mx
from mlx_lm.models.cache import TokenBuffer

from skulkd.runner.sampling import Processor, Sampler, greedy

# The limit of the OpenAI API.
MAX_RIVALS = 20


@dataclass(eq=False, slots=True)
class Row:
    """`todo` is the rest of the prompt; its last token starts decoding. `inside` of the `tokens`
    are in the caches. `fresh` until decoding has begun, `eager` until the first token was read.

    `rivals` is how many log probabilities beside the chosen one are wanted; None for none at all.
    `left` is how many tokens the row may still be given; `read`: its newest one is known.
    """

    uid: int
    todo: list[int]
    tokens: list[int]
    sampler: Sampler
    processors: list[Processor]
    left: int
    rivals: int | None = None
    fresh: bool = True
    eager: bool = True
    read: bool = False
    inside: int = 0
    context: Any = None


class Likely(NamedTuple):
    """The log probability of a chosen token and of its strongest rivals, best first."""

    chosen: float
    rivals: list[tuple[int, float]]


class Drawn(NamedTuple):
    """A token that a row got; None on a rank that does not learn it."""

    uid: int
    token: int | None
    likely: Likely | None = None


class Choice(NamedTuple):
    """`table` has a line per row for `likely`; `loose` are states no result need depend on."""

    drawn: mx.array
    table: mx.array | None
    loose: list[Any]


def wants_table(rows: list[Row]) -> bool:
    """Whether anybody wants log probabilities."""
    return any(row.rivals is not None for row in rows)


def choose(logits: mx.array, rows: list[Row], inputs: mx.array) -> Choice:
    """The next token of every row."""
    if any(row.processors for row in rows):
        logits = _processed(logits, rows, inputs)
    first = rows[0].sampler
    loose = [row.context.state for row in rows if row.context is not None]
    if logits.dtype == mx.float32 and all(_only_best(row) for row in rows):
        # In half precision the probabilities round likely tokens to equals, and mlx-lm then takes
        # another one.
        return Choice(greedy(logits).astype(mx.uint32), None, loose)
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    if all(row.sampler is first for row in rows):
        drawn = first(logprobs)
    else:
        drawn = mx.concatenate(
            [row.sampler(logprobs[at : at + 1]) for at, row in enumerate(rows)], axis=0
        )
    drawn = drawn.astype(mx.uint32)
    table = _ranked(logprobs, drawn) if wants_table(rows) else None
    return Choice(drawn, table, loose)


def _only_best(row: Row) -> bool:
    """Whether nothing but its most likely token matters: that one needs no probabilities."""
    return row.sampler is greedy and row.rivals is None


def _processed(logits: mx.array, rows: list[Row], inputs: mx.array) -> mx.array:
    processed: list[mx.array] = []
    for at, row in enumerate(rows):
        mine = logits[at : at + 1]
        if row.processors:
            if row.context is None:
                row.context = TokenBuffer(row.tokens)
            context = row.context.update_and_fetch(inputs[at : at + 1])
            for processor in row.processors:
                mine = processor(context, mine)
        processed.append(mine)
    return mx.concatenate(processed, axis=0)


def table_width(vocabulary: int) -> int:
    """Columns of the table; the same for every batch, so that rows can change lanes."""
    return 1 + 2 * min(MAX_RIVALS, vocabulary)


def _ranked(logprobs: mx.array, drawn: mx.array) -> mx.array:
    """One line per row: the chosen one's value, the rivals' numbers, the rivals' values."""
    values = logprobs.astype(mx.float32)
    chosen = mx.take_along_axis(values, drawn[:, None], axis=-1)
    count = min(MAX_RIVALS, values.shape[-1])
    best = mx.argpartition(-values, kth=count - 1, axis=-1)[:, :count]
    # Token numbers are far below 2**24, so a float holds them exactly.
    return mx.concatenate(
        [chosen, best.astype(mx.float32), mx.take_along_axis(values, best, axis=-1)], axis=-1
    )


def likely(line: list[float], wanted: int) -> Likely:
    """A line of the table, for a row that wants this many rivals."""
    count = (len(line) - 1) // 2
    pairs = zip(line[1 : 1 + count], line[1 + count :], strict=True)
    ranked = sorted(((int(token), value) for token, value in pairs), key=lambda p: (-p[1], p[0]))
    return Likely(line[0], ranked[:wanted])

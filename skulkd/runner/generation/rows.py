"""One sequence of the batch: its tokens and how its next one is chosen."""

# mlx-lm leaves its buffers untyped.
# mypy: allow-untyped-calls

from dataclasses import dataclass
from typing import Any, NamedTuple

import mlx.core as mx
from mlx_lm.models.cache import TokenBuffer

from skulkd.runner.generation.sampling import Processor, Sampler, greedy
from skulkd.runner.output.logprobs import TokenLogprobs

# The limit of the OpenAI API.
MAX_TOP_LOGPROBS = 20


@dataclass(eq=False, slots=True)
class Row:
    """`unread` is the rest of the prompt; its last token starts decoding."""

    uid: int
    unread: list[int]
    tokens: list[int]
    sampler: Sampler
    processors: list[Processor]
    remaining: int
    """Tokens that may still be sampled."""
    top_logprobs: int | None = None
    """Log probabilities besides the sampled token's; None: none at all."""
    starting: bool = True
    """Decoding has not begun."""
    awaits_first: bool = True
    """Its first token was not read yet."""
    read: bool = False
    """Its newest token was read."""
    cached: int = 0
    """How many of `tokens` are in the caches."""
    context: Any = None


class SampledToken(NamedTuple):
    """A token that a row got; None on a rank that does not see it."""

    uid: int
    token: int | None
    logprobs: TokenLogprobs | None = None


class Samples(NamedTuple):
    """`table` has a line per row for `logprobs_of`; `states` are arrays that nothing depends on."""

    tokens: mx.array
    table: mx.array | None
    states: list[Any]


def needs_logprobs(rows: list[Row]) -> bool:
    return any(row.top_logprobs is not None for row in rows)


def sample_rows(logits: mx.array, rows: list[Row], inputs: mx.array) -> Samples:
    """The next token of every row."""
    if any(row.processors for row in rows):
        logits = _processed(logits, rows, inputs)
    first = rows[0].sampler
    states = [row.context.state for row in rows if row.context is not None]
    if logits.dtype == mx.float32 and all(_is_greedy(row) for row in rows):
        # In half precision the probabilities round likely tokens to equals, and mlx-lm then takes
        # another one.
        return Samples(greedy(logits).astype(mx.uint32), None, states)
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    if all(row.sampler is first for row in rows):
        tokens = first(logprobs)
    else:
        tokens = mx.concatenate(
            [row.sampler(logprobs[at : at + 1]) for at, row in enumerate(rows)], axis=0
        )
    tokens = tokens.astype(mx.uint32)
    table = _logprob_table(logprobs, tokens) if needs_logprobs(rows) else None
    return Samples(tokens, table, states)


def _is_greedy(row: Row) -> bool:
    """Whether only its most likely token matters: that one needs no probabilities."""
    return row.sampler is greedy and row.top_logprobs is None


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
    return 1 + 2 * min(MAX_TOP_LOGPROBS, vocabulary)


def _logprob_table(logprobs: mx.array, tokens: mx.array) -> mx.array:
    """One line per row: the sampled token's value, the best tokens' ids and their values."""
    values = logprobs.astype(mx.float32)
    sampled = mx.take_along_axis(values, tokens[:, None], axis=-1)
    count = min(MAX_TOP_LOGPROBS, values.shape[-1])
    best = mx.argpartition(-values, kth=count - 1, axis=-1)[:, :count]
    # Token ids are far below 2**24, so a float holds them exactly.
    return mx.concatenate(
        [sampled, best.astype(mx.float32), mx.take_along_axis(values, best, axis=-1)], axis=-1
    )


def logprobs_of(line: list[float], top: int) -> TokenLogprobs:
    """A line of the table, for a row that wants so many top log probabilities."""
    count = (len(line) - 1) // 2
    pairs = zip(line[1 : 1 + count], line[1 + count :], strict=True)
    ranked = sorted(((int(token), value) for token, value in pairs), key=lambda p: (-p[1], p[0]))
    return TokenLogprobs(line[0], ranked[:top])

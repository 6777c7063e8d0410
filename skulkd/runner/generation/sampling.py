"""Choosing the next token: samplers and logits processors from a request's parameters."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import mlx.core as mx
from mlx_lm.sample_utils import (
    apply_min_p,
    apply_top_k,
    apply_top_p,
    make_frequency_penalty,
    make_presence_penalty,
    make_repetition_penalty,
)

from skulkd.runner.errors import BadRequest
from skulkd.runner.protocol import GenerationOptions
from skulkd.wire.tasks import TextGenerationTaskParams

Sampler = Callable[[mx.array], mx.array]
Processor = Callable[[mx.array, mx.array], mx.array]

DEFAULT_TEMPERATURE = 0.7
DEFAULT_MIN_P = 0.05
DEFAULT_REPETITION_CONTEXT = 20
_WHOLE_ANSWER = 1 << 30


def greedy(logprobs: mx.array) -> mx.array:
    return mx.argmax(logprobs, axis=-1)


def make_sampler(params: TextGenerationTaskParams, choice: int, vocab_size: int) -> Sampler:
    """A seeded sampler has a key of its own, so its draws do not depend on other requests.

    Samplers without a seed are shared by equal parameters: mlx-lm then draws once for all rows.
    """
    temperature = DEFAULT_TEMPERATURE if params.temperature is None else params.temperature
    if temperature <= 0:
        return greedy
    top_p = params.top_p if params.top_p is not None else 1.0
    min_p = params.min_p if params.min_p is not None else DEFAULT_MIN_P
    top_k = params.top_k or 0
    top_k = top_k if 0 < top_k < vocab_size else 0
    if params.seed is None:
        return _shared_sampler(temperature, top_p, min_p, top_k)
    return _seeded_sampler(_filters(top_p, min_p, top_k), temperature, params.seed + choice)


@lru_cache(maxsize=64)
def _shared_sampler(temperature: float, top_p: float, min_p: float, top_k: int) -> Sampler:
    filtered = _filters(top_p, min_p, top_k)

    def sample(logprobs: mx.array) -> mx.array:
        return mx.random.categorical(filtered(logprobs) * (1.0 / temperature))

    return sample


def _seeded_sampler(filtered: Sampler, temperature: float, seed: int) -> Sampler:
    key = mx.random.key(seed & 0xFFFFFFFFFFFFFFFF)

    def sample(logprobs: mx.array) -> mx.array:
        nonlocal key
        key, draw = mx.random.split(key)
        return mx.random.categorical(filtered(logprobs) * (1.0 / temperature), key=draw)

    return sample


def _filters(top_p: float, min_p: float, top_k: int) -> Sampler:
    def filtered(logprobs: mx.array) -> mx.array:
        if 0 < top_p < 1:
            logprobs = apply_top_p(logprobs, top_p)
        if 0 < min_p <= 1:
            logprobs = apply_min_p(logprobs, min_p)
        if top_k:
            logprobs = apply_top_k(logprobs, top_k)
        return logprobs

    return filtered


def make_processors(
    params: TextGenerationTaskParams,
    options: GenerationOptions,
    *,
    prompt_tokens: int,
    vocab_size: int,
) -> list[Processor]:
    """Raises BadRequest for a bias on a token that does not exist."""
    processors: list[Processor] = []
    if options.logit_bias:
        processors.append(_bias(options.logit_bias, vocab_size))
    if params.repetition_penalty is not None and params.repetition_penalty not in (0.0, 1.0):
        context = params.repetition_context_size or DEFAULT_REPETITION_CONTEXT
        processors.append(make_repetition_penalty(params.repetition_penalty, context))
    # These two count the answer and not the prompt, as OpenAI describes them.
    if options.presence_penalty:
        penalty = make_presence_penalty(options.presence_penalty, _WHOLE_ANSWER)
        processors.append(_answer_only(penalty, prompt_tokens))
    if options.frequency_penalty:
        penalty = make_frequency_penalty(options.frequency_penalty, _WHOLE_ANSWER)
        processors.append(_answer_only(penalty, prompt_tokens))
    return processors


def _answer_only(penalty: Any, prompt_tokens: int) -> Processor:
    def process(tokens: mx.array, logits: mx.array) -> mx.array:
        answer = tokens[prompt_tokens:]
        processed: mx.array = penalty(answer, logits)
        return processed

    return process


def _bias(bias: dict[str, float], vocab_size: int) -> Processor:
    try:
        by_token = {int(token): value for token, value in bias.items()}
    except ValueError as error:
        raise BadRequest(f"logit_bias: keys are token ids: {error}") from error
    wrong = [token for token in by_token if not 0 <= token < vocab_size]
    if wrong:
        raise BadRequest(f"logit_bias: the model has no token {wrong[0]}")
    tokens = mx.array(list(by_token))
    values = mx.array(list(by_token.values()))

    def process(_: mx.array, logits: mx.array) -> mx.array:
        return logits.at[:, tokens].add(values)

    return process

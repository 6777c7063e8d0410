"""Counts and speeds of an answered request."""

from skulkd.runner.request import Request
from skulkd.wire.base import Memory
from skulkd.wire.chat import CompletionTokensDetails, GenerationStats, PromptTokensDetails, Usage


def usage_of(request: Request) -> Usage:
    """The prompt counts once, however many choices there are."""
    completion = sum(choice.tokens for choice in request.choices)
    return Usage(
        prompt_tokens=len(request.prompt),
        completion_tokens=completion,
        total_tokens=len(request.prompt) + completion,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=request.cached),
        completion_tokens_details=CompletionTokensDetails(
            reasoning_tokens=sum(choice.reasoning_tokens for choice in request.choices)
        ),
    )


def stats_of(request: Request, peak_bytes: int, *, serving_batches: bool) -> GenerationStats:
    """Speeds as a client feels them: prompt until the first token, then the tokens after it."""
    completion = sum(choice.tokens for choice in request.choices)
    prompt_s = request.first_token_at - request.admitted_at
    answer_s = request.last_token_at - request.first_token_at
    computed = len(request.prompt) - request.cached
    later = completion - len(request.choices)
    return GenerationStats(
        prompt_tps=_rate(computed, prompt_s),
        generation_tps=_rate(later, answer_s) if later > 0 else _rate(completion, prompt_s),
        prompt_tokens=len(request.prompt),
        generation_tokens=completion,
        peak_memory_usage=Memory.of(peak_bytes),
        serving_batches=serving_batches,
        in_flight_at_admission=request.in_flight_at_admission,
    )


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0

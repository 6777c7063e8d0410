"""What a generation request asks for, as the worker takes it, and the limits on it. Pure.

Shared by every API family that generates text; knows none of their bodies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from skulkd.api.errors import ApiError
from skulkd.runner.protocol import GenerationOptions
from skulkd.wire.tasks import TextGenerationTaskParams

MAX_CHOICES = 32
MAX_RIVALS = 20

# Outside of these a sampler has no meaning, or divides by zero.
_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
    "repetition_context_size": (0, 1_000_000),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "top_logprobs": (0, MAX_RIVALS),
    "n": (1, MAX_CHOICES),
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """One request: `params` go into the state with its task, `options` only to the runner."""

    params: TextGenerationTaskParams
    options: GenerationOptions


def check_ranges(values: Mapping[str, float | None]) -> None:
    """Raises ApiError 400 that names the first value out of its range."""
    for name, value in values.items():
        low, high = _RANGES[name]
        if value is not None and not (isfinite(value) and low <= value <= high):
            raise ApiError(400, f"{name} must be between {low:g} and {high:g}, not {value:g}")


def check_budget(max_tokens: int | None, limits: Iterable[int | None]) -> None:
    """Raises ApiError 400 when the wanted answer can fit no instance of the model."""
    if max_tokens is None:
        return
    if max_tokens <= 0:
        raise ApiError(400, f"max_tokens must be positive, not {max_tokens}")
    known = list(limits)
    largest = max((limit for limit in known if limit is not None), default=None)
    if largest is not None and None not in known and max_tokens >= largest:
        raise ApiError(
            400,
            f"context_length_exceeded: max_tokens ({max_tokens}) leaves no room for a prompt,"
            f" the limit is {largest} tokens together",
        )


def stop_strings(stop: str | Sequence[str] | None) -> list[str] | None:
    """As a list without empty ones, which would stop every answer at once."""
    if stop is None:
        return None
    return [text for text in ([stop] if isinstance(stop, str) else stop) if text] or None


def logit_bias(bias: Mapping[str, int] | None) -> dict[str, float] | None:
    return {token: float(value) for token, value in bias.items()} if bias else None

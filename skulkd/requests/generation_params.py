"""The parameters of a generation request as the worker takes them, and their limits. Pure.

Shared by every API family that generates text; knows none of their bodies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from skulkd.requests.errors import RequestError
from skulkd.runner.protocol import GenerationOptions
from skulkd.wire.tasks import TextGenerationTaskParams

MAX_CHOICES = 32
MAX_TOP_LOGPROBS = 20

# Outside of these ranges a sampler has no meaning, or divides by zero.
_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
    "repetition_context_size": (0, 1_000_000),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "top_logprobs": (0, MAX_TOP_LOGPROBS),
    "n": (1, MAX_CHOICES),
}


FieldNames = Mapping[str, str]
"""The names that an API family has for fields, by those of chat requests; only where they differ.

An error must name what its client has sent.
"""
SAME_NAMES: FieldNames = {}


@dataclass(frozen=True, slots=True)
class GenerationParams:
    """`task` goes into the replicated state with its task, `options` only to the runner."""

    task: TextGenerationTaskParams
    options: GenerationOptions
    keep_alive_s: float | None = None
    """How long the model stays loaded afterwards, where it was placed on demand; None: as it is."""

    @property
    def model(self) -> str:
        return self.task.model


def check_ranges(values: Mapping[str, float | None], names: FieldNames = SAME_NAMES) -> None:
    """Raises RequestError that names the first value out of its range."""
    for name, value in values.items():
        low, high = _RANGES[name]
        if value is not None and not (isfinite(value) and low <= value <= high):
            known = names.get(name, name)
            message = f"{known} must be between {low:g} and {high:g}, not {value:g}"
            raise RequestError("invalid_request", message)


def check_budget(
    max_tokens: int | None, limits: Iterable[int | None], name: str = "max_tokens"
) -> None:
    """Raises RequestError when the requested length, `name`, fits no instance of the model."""
    if max_tokens is None:
        return
    if max_tokens <= 0:
        raise RequestError("invalid_request", f"{name} must be positive, not {max_tokens}")
    known = list(limits)
    largest = max((limit for limit in known if limit is not None), default=None)
    if largest is not None and None not in known and max_tokens >= largest:
        raise RequestError(
            "invalid_request",
            f"context_length_exceeded: {name} ({max_tokens}) leaves no room for a prompt,"
            f" the limit is {largest} tokens for prompt and answer together",
        )


def stop_strings(stop: str | Sequence[str] | None) -> list[str] | None:
    """As a list without empty strings, which would stop every answer at once."""
    if stop is None:
        return None
    return [text for text in ([stop] if isinstance(stop, str) else stop) if text] or None


def logit_bias(bias: Mapping[str, int] | None) -> dict[str, float] | None:
    return {token: float(value) for token, value in bias.items()} if bias else None

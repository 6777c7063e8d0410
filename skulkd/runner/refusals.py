"""Requests that this runner cannot serve. No MLX."""


class BadRequest(Exception):
    """Asking again will not help; the text is for the client."""


class ContextLengthExceeded(BadRequest):
    """The prompt, or the prompt and the wanted answer, do not fit."""

    def __init__(self, prompt_tokens: int, max_tokens: int | None, limit: int) -> None:
        wanted = "" if max_tokens is None else f" and max_tokens is {max_tokens}"
        super().__init__(
            f"context_length_exceeded: the prompt has {prompt_tokens} tokens{wanted}, "
            f"the limit is {limit} tokens together"
        )


def answer_budget(prompt_tokens: int, wanted: int | None, limit: int | None, default: int) -> int:
    """How many tokens the answer may have. Raises BadRequest."""
    if wanted is not None and wanted <= 0:
        raise BadRequest(f"max_tokens must be positive, not {wanted}")
    if limit is None:
        return wanted or default
    if prompt_tokens >= limit or (wanted is not None and wanted > limit - prompt_tokens):
        raise ContextLengthExceeded(prompt_tokens, wanted, limit)
    return wanted if wanted is not None else min(default, limit - prompt_tokens)

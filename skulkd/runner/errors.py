"""What a runner refuses: a request, a model, a group. The text is for people. No MLX here."""


class BadModel(Exception):
    """The model directory cannot be served; the text says what is wrong and in which file."""


class GroupUnreachable(Exception):
    """The group did not come together; the text names the ranks and addresses."""


class BadRequest(Exception):
    """Asking again will not help; the text is for the client."""


class ContextLengthExceeded(BadRequest):
    """The prompt, or the prompt and the wanted answer, do not fit; `name` is that of the length."""

    def __init__(self, prompt_tokens: int, wanted: int | None, limit: int, name: str) -> None:
        # The length is no part of the problem when the prompt alone is too long.
        fits = wanted is not None and prompt_tokens < limit
        answer = f" and {name} is {wanted}" if fits else ""
        super().__init__(
            f"context_length_exceeded: the prompt has {prompt_tokens} tokens{answer}, "
            f"the limit is {limit} tokens for prompt and answer together"
        )

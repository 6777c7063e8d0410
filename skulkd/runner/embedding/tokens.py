"""Inputs of an embedding model as token ids, with the special tokens and the limit of the model."""

from pathlib import Path

from tokenizers import Tokenizer

from skulkd.runner.errors import BadModel, BadRequest

# Any text that is sure to become tokens; what surrounds them is special.
_PROBE = "a"


class InputTokenizer:
    """`limit` counts special tokens, too."""

    def __init__(self, tokenizer: Tokenizer, limit: int, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._vocab_size = vocab_size
        self.limit = limit
        plain = tokenizer.encode(_PROBE, add_special_tokens=False).ids
        whole = tokenizer.encode(_PROBE).ids
        starts = range(len(whole) - len(plain) + 1)
        begin = next(at for at in starts if whole[at : at + len(plain)] == plain)
        self._before: list[int] = whole[:begin]
        self._after: list[int] = whole[begin + len(plain) :]

    @classmethod
    def read(cls, directory: Path, limit: int, vocab_size: int) -> "InputTokenizer":
        """Raises BadModel."""
        path = directory / "tokenizer.json"
        try:
            return cls(Tokenizer.from_file(str(path)), limit, vocab_size)
        except Exception as error:  # the library raises plain Exception for every broken file
            raise BadModel(f"{path} cannot be used: {error}") from error

    def encode(self, inputs: list[str | list[int]], *, truncate: bool) -> list[list[int]]:
        """Token ids of every input. Raises BadRequest that names the input."""
        return [self._encode(index, one, truncate) for index, one in enumerate(inputs)]

    def _encode(self, index: int, given: str | list[int], truncate: bool) -> list[int]:
        if isinstance(given, str):
            ids = self._tokenizer.encode(given, add_special_tokens=False).ids
        else:
            ids = self._checked(index, given)
        room = self.limit - len(self._before) - len(self._after)
        if len(ids) > room and not truncate:
            raise BadRequest(
                f"context_length_exceeded: input[{index}] has {len(ids)} tokens, the limit of"
                f" this model is {room}"
            )
        whole = [*self._before, *ids[:room], *self._after]
        if not whole:
            raise BadRequest(f"input[{index}] has no tokens")
        return whole

    def _checked(self, index: int, given: list[int]) -> list[int]:
        """Token ids of a client, without the special tokens that it may have added."""
        for token in given:
            if not 0 <= token < self._vocab_size:
                raise BadRequest(
                    f"input[{index}]: token {token} is not in the vocabulary of this model,"
                    f" which has {self._vocab_size} tokens"
                )
        around = len(self._before) + len(self._after)
        end = len(given) - len(self._after)
        if (
            around
            and len(given) >= around
            and given[: len(self._before)] == self._before
            and given[end:] == self._after
        ):
            return given[len(self._before) : end]
        return given

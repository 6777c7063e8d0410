"""Log probabilities of chosen tokens and their rivals, as the API shows them."""

from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer

from skulkd.runner.token_bytes import byte_level_bytes, sentence_piece_bytes
from skulkd.wire.chat import LogprobsContentItem, TopLogprobItem

# JSON has no infinity; a token that a grammar forbids is this unlikely.
_LOWEST = -9999.0


class TokenDescriber:
    """Texts, bytes and log probabilities of tokens, for one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        byte_level = isinstance(tokenizer.detokenizer, BPEStreamingDetokenizer)
        self._bytes_of = byte_level_bytes if byte_level else sentence_piece_bytes

    def describe(self, token: int, logprobs: mx.array, rivals: int) -> LogprobsContentItem:
        """`logprobs` is the whole normalised vector of this step."""
        values = np.array(logprobs.astype(mx.float32))
        best: list[int] = []
        if rivals > 0:
            count = min(rivals, values.size)
            best = [int(number) for number in np.argpartition(values, -count)[-count:]]
            best.sort(key=lambda number: (-values[number], number))
        return LogprobsContentItem(
            **self._entry(token, values), top_logprobs=[self._rival(n, values) for n in best]
        )

    def _rival(self, token: int, values: Any) -> TopLogprobItem:
        return TopLogprobItem(**self._entry(token, values))

    def _entry(self, token: int, values: Any) -> dict[str, Any]:
        piece = self._tokenizer.convert_ids_to_tokens(token)
        return {
            "token": str(self._tokenizer.decode([token])),
            "logprob": max(float(values[token]), _LOWEST),
            "bytes": list(self._bytes_of(piece)) if isinstance(piece, str) else None,
        }

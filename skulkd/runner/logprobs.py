"""Log probabilities of chosen tokens and their rivals, as the API shows them."""

from typing import Any

from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer

from skulkd.runner.rows import Likely
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

    def describe(self, token: int, likely: Likely) -> LogprobsContentItem:
        """The chosen token and its rivals, best first."""
        rivals = [TopLogprobItem(**self._entry(*rival)) for rival in likely.rivals]
        return LogprobsContentItem(**self._entry(token, likely.chosen), top_logprobs=rivals)

    def _entry(self, token: int, value: float) -> dict[str, Any]:
        piece = self._tokenizer.convert_ids_to_tokens(token)
        return {
            "token": str(self._tokenizer.decode([token])),
            "logprob": max(value, _LOWEST),
            "bytes": list(self._bytes_of(piece)) if isinstance(piece, str) else None,
        }

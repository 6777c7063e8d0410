"""Log probabilities of tokens and the bytes behind them, as the API shows them."""

import re
from functools import cache
from typing import Any, NamedTuple

from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer

from skulkd.wire.chat import LogprobsContentItem, TopLogprobItem

_SPM_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPM_SPACE = "\u2581"


@cache
def _byte_alphabet() -> dict[str, int]:
    """How byte-level vocabularies write bytes: printable ones as they are, the rest moved up."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in printable}
    moved = (byte for byte in range(256) if byte not in printable)
    return table | {chr(256 + place): byte for place, byte in enumerate(moved)}


def byte_level_bytes(piece: str) -> bytes:
    """Bytes of a vocabulary entry of a byte-level tokenizer; added tokens are plain text."""
    table = _byte_alphabet()
    if all(letter in table for letter in piece):
        return bytes(table[letter] for letter in piece)
    return piece.encode()


def sentence_piece_bytes(piece: str) -> bytes:
    """Bytes of a vocabulary entry of a SentencePiece tokenizer."""
    if match := _SPM_BYTE.fullmatch(piece):
        return bytes.fromhex(match[1])
    return piece.replace(_SPM_SPACE, " ").encode()


# JSON has no infinity: the value of a token that a grammar forbids.
_LOWEST = -9999.0


class TokenLogprobs(NamedTuple):
    """The log probability of a sampled token and of the most likely ones, best first."""

    sampled: float
    top: list[tuple[int, float]]


class TokenDescriber:
    """Texts, bytes and log probabilities of tokens, for one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        byte_level = isinstance(tokenizer.detokenizer, BPEStreamingDetokenizer)
        self._bytes_of = byte_level_bytes if byte_level else sentence_piece_bytes

    def describe(self, token: int, logprobs: TokenLogprobs) -> LogprobsContentItem:
        """The sampled token and the most likely ones, best first."""
        top = [TopLogprobItem(**self._entry(*candidate)) for candidate in logprobs.top]
        return LogprobsContentItem(**self._entry(token, logprobs.sampled), top_logprobs=top)

    def _entry(self, token: int, value: float) -> dict[str, Any]:
        piece = self._tokenizer.convert_ids_to_tokens(token)
        return {
            "token": str(self._tokenizer.decode([token])),
            "logprob": max(value, _LOWEST),
            "bytes": list(self._bytes_of(piece)) if isinstance(piece, str) else None,
        }

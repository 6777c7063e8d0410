"""The bytes behind a token, also when they are only part of a character. Pure."""

import re
from functools import cache

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

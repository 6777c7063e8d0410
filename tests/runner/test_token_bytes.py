"""Bytes of tokens."""

from __future__ import annotations

import pytest
from tokenizers.pre_tokenizers import ByteLevel

from skulkd.runner.output.logprobs import byte_level_bytes, sentence_piece_bytes


def test_every_letter_of_the_byte_alphabet_is_one_byte() -> None:
    alphabet = ByteLevel.alphabet()
    assert {byte_level_bytes(letter) for letter in alphabet} == {bytes([b]) for b in range(256)}


@pytest.mark.parametrize("text", ["hello world", "na\u00efve", "\U0001f600", "tab\tline\n"])
def test_a_text_split_to_bytes_comes_back(text: str) -> None:
    pieces = [piece for piece, _ in ByteLevel(add_prefix_space=False).pre_tokenize_str(text)]
    assert b"".join(byte_level_bytes(piece) for piece in pieces) == text.encode()


@pytest.mark.parametrize(
    ("piece", "expected"),
    [("<|im_end|>", b"<|im_end|>"), ("<\uff5cend\uff5c>", "<\uff5cend\uff5c>".encode())],
)
def test_added_tokens_are_plain_text(piece: str, expected: bytes) -> None:
    assert byte_level_bytes(piece) == expected


@pytest.mark.parametrize(
    ("piece", "expected"), [("\u2581the", b" the"), ("<0xE2>", b"\xe2"), ("<0xE2>x", b"<0xE2>x")]
)
def test_sentence_pieces_mark_spaces_and_bytes(piece: str, expected: bytes) -> None:
    assert sentence_piece_bytes(piece) == expected

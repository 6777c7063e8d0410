"""all-MiniLM-L6-v2 in a real runner: its numbers are BERT's, and its vectors mean something."""

from __future__ import annotations

import numpy as np

from tests.embedding.embedder import Embedder
from tests.embedding.plain_forward import PlainBert
from tests.embedding.sentences import PAIRS, PARAPHRASES


def test_similarities_are_those_of_a_plain_forward(real: Embedder) -> None:
    """Twenty pairs in one batch of mixed lengths, against numpy one by one."""
    plain = PlainBert(real.model)
    texts = [text for pair in PAIRS for text in pair]
    ours = real.embed(texts)
    theirs = np.stack([plain.embed(text) for text in texts])
    assert ours.shape == (40, 384)
    assert np.abs(np.linalg.norm(ours, axis=1) - 1).max() < 1e-5
    similar = (ours[0::2] * ours[1::2]).sum(axis=1)
    expected = (theirs[0::2] * theirs[1::2]).sum(axis=1)
    assert np.abs(similar - expected).max() <= 1e-4
    # Stricter than the similarities: no part of a vector may differ.
    assert np.abs(ours - theirs).max() <= 1e-4

    # And they mean something: every paraphrase is closer than every pair of strangers.
    assert similar[: len(PARAPHRASES)].min() > similar[len(PARAPHRASES) :].max()
    assert similar[: len(PARAPHRASES)].min() > 0.5

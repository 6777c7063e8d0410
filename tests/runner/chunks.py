"""Ways to cut a text into pieces, for properties that must not depend on them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st


@st.composite
def cut_texts(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> tuple[str, list[str]]:
    """A text and the same text in pieces."""
    text = draw(texts)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    edges = [0, *cuts, len(text)]
    return text, [text[a:b] for a, b in pairwise(edges)]


def assembled(*parts: str) -> st.SearchStrategy[str]:
    """Texts made of these parts and their letters, so that half markers are common."""
    letters = sorted({letter for part in parts for letter in part})
    pieces = st.sampled_from([*parts, *letters])
    return st.lists(pieces, max_size=30).map("".join)

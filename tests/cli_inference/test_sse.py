"""Server-sent events: the same frames however the bytes are cut."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkctl.daemon.sse import Comment, Data, Frame, FrameParser


def frames(pieces: Iterable[bytes]) -> list[Frame]:
    parser = FrameParser()
    return [frame for piece in pieces for frame in parser.feed(piece)]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"data: a\n\n", [Data("a")]),
        (b"data:a\r\n\r\n", [Data("a")]),
        (b"data: a\rdata: b\r\r", [Data("a\nb")]),
        (b": keep-alive\n\ndata: x\n\n", [Comment("keep-alive"), Data("x")]),
        (b":\n", [Comment("")]),
        (b"data\n\n", [Data("")]),
        (b"data:  two\n\n", [Data(" two")]),
        (b"event: x\nid: 1\nretry: 5\n\n", []),
        (b"\n\n\n", []),
        (b"data: never ended\n", []),
        (b"\xef\xbb\xbfdata: bom\n\n", [Data("bom")]),
        ("data: für \u2028 Zeilen\n\n".encode(), [Data("für \u2028 Zeilen")]),
        (b"data: \xff\n\n", [Data("\ufffd")]),
    ],
)
def test_frames_follow_the_format(raw: bytes, expected: list[Frame]) -> None:
    assert frames([raw]) == expected
    assert frames(raw[i : i + 1] for i in range(len(raw))) == expected


LINES = st.sampled_from(
    [b"data: a", b"data:", b": note", b"event: e", b"", b"data: \xc3\xa4\xe2\x82\xac", b"x"]
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])


@given(st.lists(st.tuples(LINES, ENDS), max_size=12), st.data())
def test_every_way_to_cut_a_stream_gives_the_same_frames(
    lines: list[tuple[bytes, bytes]], draw: st.DataObject
) -> None:
    raw = b"".join(line + end for line, end in lines)
    cuts = draw.draw(st.lists(st.integers(0, len(raw)), max_size=8))
    edges = [0, *sorted(cuts), len(raw)]
    assert frames(raw[a:b] for a, b in pairwise(edges)) == frames([raw])


@given(st.binary(max_size=200), st.integers(1, 7))
def test_any_bytes_are_read_without_an_error(raw: bytes, step: int) -> None:
    pieces = [raw[i : i + step] for i in range(0, len(raw), step)]
    assert frames(pieces) == frames([raw])


def test_a_frame_comes_out_as_soon_as_it_is_complete() -> None:
    parser = FrameParser()
    assert parser.feed(b"data: a\n") == []
    assert parser.feed(b"\n") == [Data("a")]
    assert parser.feed(b": c\r") == [Comment("c")]
    assert parser.feed(b"\n") == []

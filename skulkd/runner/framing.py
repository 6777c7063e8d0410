"""Frames on a pipe: four bytes of length, big-endian, then that many bytes of content.

Knows nothing of what the content means.
"""

import asyncio
import os
import struct

MAX_FRAME_BYTES = 16 * 1024 * 1024
_HEADER = struct.Struct(">I")
_READ_BYTES = 256 * 1024


class FrameError(Exception):
    """The other side broke the framing: nothing after this can be trusted."""


def pack(content: bytes) -> bytes:
    """One frame. Raises FrameError when the content is larger than a frame may be."""
    if len(content) > MAX_FRAME_BYTES:
        raise FrameError(f"frame of {len(content)} bytes, the limit is {MAX_FRAME_BYTES}")
    return _HEADER.pack(len(content)) + content


class FrameSplitter:
    """Cuts a byte stream into frames, however the bytes arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are complete now. Raises FrameError for one that is too large."""
        self._buffer += data
        frames: list[bytes] = []
        start = 0
        while len(self._buffer) - start >= _HEADER.size:
            end = start + _HEADER.size + _checked_length(self._buffer[start : start + 4])
            if len(self._buffer) < end:
                break
            frames.append(bytes(self._buffer[start + _HEADER.size : end]))
            start = end
        del self._buffer[:start]
        return frames

    @property
    def partial(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return bool(self._buffer)


def _checked_length(header: bytes | bytearray) -> int:
    (length,) = _HEADER.unpack(header)
    if length > MAX_FRAME_BYTES:
        raise FrameError(f"frame of {length} bytes, the limit is {MAX_FRAME_BYTES}")
    return int(length)


class FrameReader:
    """Blocking reader of one file descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._splitter = FrameSplitter()

    def read(self) -> list[bytes] | None:
        """At least one frame, or None at the end of the stream.

        Raises FrameError when the stream ends inside a frame.
        """
        while True:
            data = os.read(self._fd, _READ_BYTES)
            if not data:
                if self._splitter.partial:
                    raise FrameError("the stream ended inside a frame")
                return None
            if frames := self._splitter.feed(data):
                return frames


def write_all(fd: int, data: bytes) -> None:
    """Write everything; blocks while the pipe is full."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """One frame, or None at a clean end. Raises FrameError for a broken one."""
    try:
        header = await reader.readexactly(_HEADER.size)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise FrameError("the stream ended inside a frame header") from error
        return None
    try:
        return await reader.readexactly(_checked_length(header))
    except asyncio.IncompleteReadError as error:
        raise FrameError("the stream ended inside a frame") from error

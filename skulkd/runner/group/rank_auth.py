"""Proof that both ends of a connection are ranks of one attempt of one group.

The daemons derive the key from the cluster secret (`skulkd/worker/group_addresses.py`); it is never
sent. Both sides send a fresh random number and prove with it that they have the key, so a
recorded conversation proves nothing. Every message after that carries a tag of its content and
position, made with keys that only this connection has.
"""

import hashlib
import hmac
import os
import struct
import time
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from skulkd.runner.framing import FrameError, FrameSplitter, pack
from skulkd.runner.group.rank_stream import RankStream

Purpose = Literal["meeting", "link"]
_PURPOSES: tuple[Purpose, ...] = ("meeting", "link")
_MAGIC = b"skulk-rank-1"
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_TAG_BYTES = 16
_HELLO = struct.Struct(f">{len(_MAGIC)}sBHH{_NONCE_BYTES}s")


class WrongKey(Exception):
    """The other side has not proved that it belongs to this attempt of this group."""


class RankHello(NamedTuple):
    """What a connection is for, in rank numbers."""

    purpose: Purpose
    caller: int
    listener: int


@dataclass(slots=True)
class SealedStream:
    """Messages over an authenticated stream. One thread may receive while another sends."""

    hello: RankHello
    _stream: RankStream
    _send_key: bytes = field(repr=False)
    _receive_key: bytes = field(repr=False)
    _sent: int = 0
    _received: int = 0
    _splitter: FrameSplitter = field(default_factory=FrameSplitter)
    _messages: list[bytes] = field(default_factory=list)

    def send(self, content: bytes) -> None:
        """Raises OSError when the other side is gone."""
        tag = _tag(self._send_key, self._sent, content)
        self._sent += 1
        self._stream.send(pack(tag + content))

    def receive(self) -> bytes | None:
        """The next message; None at the end. Raises OSError and FrameError."""
        while not self._messages:
            data = self._stream.receive()
            if not data:
                if self._splitter.partial:
                    raise FrameError("the stream ended inside a message")
                return None
            self.feed(data)
        return self._messages.pop(0)

    def feed(self, data: bytes) -> None:
        """Take bytes that have been read already. Raises FrameError."""
        self._messages += [self._opened(frame) for frame in self._splitter.feed(data)]

    def set_timeout(self, seconds: float | None) -> None:
        self._stream.set_timeout(seconds)

    def close(self) -> None:
        self._stream.close()

    def _opened(self, frame: bytes) -> bytes:
        content = frame[_TAG_BYTES:]
        wanted = _tag(self._receive_key, self._received, content)
        if not hmac.compare_digest(frame[:_TAG_BYTES], wanted):
            raise FrameError("a message with a wrong tag: changed, repeated or out of order")
        self._received += 1
        return content


def call(stream: RankStream, key: bytes, hello: RankHello, deadline: float) -> SealedStream:
    """Prove this side, which has dialled, and check the other. Raises OSError, WrongKey."""
    opening = _HELLO.pack(
        _MAGIC, _PURPOSES.index(hello.purpose), hello.caller, hello.listener, _nonce()
    )
    stream.send(opening)
    answer = _exactly(stream, _NONCE_BYTES + _PROOF_BYTES, deadline)
    own, other = stream.fingerprints
    transcript = opening + answer[:_NONCE_BYTES] + own + other
    if not hmac.compare_digest(answer[_NONCE_BYTES:], _derive(key, b"listener", transcript)):
        raise WrongKey("it does not have the key of this group")
    stream.send(_derive(key, b"caller", transcript))
    return _sealed(stream, hello, key, transcript, caller=True)


def receive_call(
    stream: RankStream, key: bytes, purpose: Purpose, rank: int, deadline: float
) -> SealedStream:
    """The listening side of `call`. Raises OSError, WrongKey; the caller learns nothing then."""
    opening = _exactly(stream, _HELLO.size, deadline)
    magic, code, caller, listener, _ = _HELLO.unpack(opening)
    if (magic, code, listener) != (_MAGIC, _PURPOSES.index(purpose), rank):
        raise WrongKey("not a call for this rank")
    nonce = _nonce()
    own, other = stream.fingerprints
    transcript = opening + nonce + other + own
    stream.send(nonce + _derive(key, b"listener", transcript))
    # The first message may come together with the proof.
    proof, early = _at_least(stream, _PROOF_BYTES, deadline)
    if not hmac.compare_digest(proof, _derive(key, b"caller", transcript)):
        raise WrongKey("it does not have the key of this group")
    sealed = _sealed(stream, RankHello(purpose, caller, listener), key, transcript, caller=False)
    sealed.feed(early)
    return sealed


def _sealed(
    stream: RankStream, hello: RankHello, key: bytes, transcript: bytes, *, caller: bool
) -> SealedStream:
    stream.set_timeout(None)
    ours = _derive(key, b"from caller" if caller else b"from listener", transcript)
    theirs = _derive(key, b"from listener" if caller else b"from caller", transcript)
    return SealedStream(hello, stream, ours, theirs)


def _derive(key: bytes, use: bytes, transcript: bytes) -> bytes:
    return hmac.new(key, use + b"\0" + transcript, hashlib.sha256).digest()


def _tag(key: bytes, position: int, content: bytes) -> bytes:
    tag = hashlib.blake2b(position.to_bytes(8, "big"), key=key, digest_size=_TAG_BYTES)
    tag.update(content)
    return tag.digest()


def _nonce() -> bytes:
    return os.urandom(_NONCE_BYTES)


def _exactly(stream: RankStream, size: int, deadline: float) -> bytes:
    data, more = _at_least(stream, size, deadline)
    if more:
        raise WrongKey("it sent more than a rank would")
    return data


def _at_least(stream: RankStream, size: int, deadline: float) -> tuple[bytes, bytes]:
    """The next bytes, and what came together with them."""
    data = b""
    while len(data) < size:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        stream.set_timeout(left_s)
        part = stream.receive()
        if not part:
            raise ConnectionResetError("closed before the ranks had proved who they are")
        data += part
    return data[:size], data[size:]

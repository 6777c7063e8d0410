"""Proof that a frame was written by somebody who knows the cluster secret. Pure.

The fabric's own password check proves the caller to the called, not the other way round. So every
frame also carries a tag made with a key that comes from the secret; a stranger whom this node
happens to dial can neither say anything nor pass anything on under another address. And every frame
carries a number that only grows, so that one who has recorded a frame cannot say it again.
"""

from __future__ import annotations

import hashlib
import heapq
import hmac
from collections import OrderedDict

TAG_BYTES = 16
NUMBER_BYTES = 8
REMEMBERED = 256
"""Frames of one address that may arrive in another order than they were numbered."""
ADDRESSES = 4096


class Seal:
    """Seals and opens frames of one namespace."""

    def __init__(self, secret: str, namespace: str) -> None:
        self.password = _derived(secret, "password", namespace)
        """For the fabric's own check; the secret itself never leaves this machine."""
        self.realm = hashlib.blake2b(namespace.encode(), digest_size=8).hexdigest()
        self._key = bytes.fromhex(_derived(secret, "frames", namespace))

    def close(self, address: str, number: int, body: bytes) -> bytes:
        """The frame for this address: tag, number, body."""
        numbered = number.to_bytes(NUMBER_BYTES, "big") + body
        return self._tag(address, numbered) + numbered

    def open(self, address: str, frame: bytes) -> tuple[int, bytes] | None:
        """Number and body; None when it was not sealed for this address with this secret."""
        numbered = frame[TAG_BYTES:]
        if len(numbered) < NUMBER_BYTES or not hmac.compare_digest(
            frame[:TAG_BYTES], self._tag(address, numbered)
        ):
            return None
        return int.from_bytes(numbered[:NUMBER_BYTES], "big"), numbered[NUMBER_BYTES:]

    def _tag(self, address: str, body: bytes) -> bytes:
        tag = hashlib.blake2b(key=self._key, digest_size=TAG_BYTES)
        tag.update(address.encode())
        tag.update(b"\0")
        tag.update(body)
        return tag.digest()


class Heard:
    """Which frames have come, by address. Bounded in numbers and in addresses."""

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Numbers] = OrderedDict()

    def is_new(self, address: str, number: int, *, from_the_first: bool) -> bool:
        """Whether this is the first time; it is remembered.

        `from_the_first`: the address is this node's own, which did not exist before it started,
        so nothing to it can be older than what is remembered. Of an address to all only what
        comes after the first frame heard is believed.
        """
        known = self._addresses.get(address)
        if known is None:
            known = self._addresses[address] = _Numbers(0 if from_the_first else number - 1)
            if len(self._addresses) > ADDRESSES:
                self._addresses.popitem(last=False)
        self._addresses.move_to_end(address)
        return known.take(number)


class _Numbers:
    """The newest numbers; everything up to `floor` counts as heard."""

    __slots__ = ("floor", "heap", "seen")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.heap: list[int] = []
        self.seen: set[int] = set()

    def take(self, number: int) -> bool:
        if number <= self.floor or number in self.seen:
            return False
        heapq.heappush(self.heap, number)
        self.seen.add(number)
        if len(self.heap) > REMEMBERED:
            self.floor = heapq.heappop(self.heap)
            self.seen.discard(self.floor)
        return True


def _derived(secret: str, use: str, namespace: str) -> str:
    text = f"skulk fabric\0{use}\0{namespace}".encode()
    return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()

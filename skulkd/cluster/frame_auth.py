"""Authentication of frames with a key derived from the cluster secret, and replay protection. Pure.

Zenoh's password check authenticates only the node that dials. So every frame also carries a MAC
over its address and content: a stranger that this node dials can neither send frames nor forward
one to another address. Every frame has an increasing number, so a recorded frame cannot be
replayed.
"""

from __future__ import annotations

import hashlib
import heapq
import hmac
from collections import OrderedDict

TAG_BYTES = 16
NUMBER_BYTES = 8
REMEMBERED = 256
"""How many frames of one address may arrive out of order."""
ADDRESSES = 4096


class FrameAuth:
    """Signs and verifies the frames of one namespace."""

    def __init__(self, secret: str, namespace: str) -> None:
        self.password = _derived(secret, "password", namespace)
        """For Zenoh's password check; the secret itself never leaves this machine."""
        self.realm = hashlib.blake2b(namespace.encode(), digest_size=8).hexdigest()
        self._key = bytes.fromhex(_derived(secret, "frames", namespace))

    def sign(self, address: str, number: int, body: bytes) -> bytes:
        """The frame for this address: tag, number, body."""
        numbered = number.to_bytes(NUMBER_BYTES, "big") + body
        return self._tag(address, numbered) + numbered

    def verify(self, address: str, frame: bytes) -> tuple[int, bytes] | None:
        """Number and body; None when it was not signed for this address with this secret."""
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


class ReplayGuard:
    """Numbers of the received frames, by address. Bounded in numbers and in addresses."""

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Numbers] = OrderedDict()

    def is_new(self, address: str, number: int, *, from_the_first: bool) -> bool:
        """Whether this number is new for the address; it is remembered.

        `from_the_first`: accept all numbers, because the address is this node's own and did not
        exist before it started. For an address to all nodes, only frames after the first one
        received are accepted, because older ones may be replayed.
        """
        known = self._addresses.get(address)
        if known is None:
            known = self._addresses[address] = _Numbers(0 if from_the_first else number - 1)
            if len(self._addresses) > ADDRESSES:
                self._addresses.popitem(last=False)
        self._addresses.move_to_end(address)
        return known.accept(number)


class _Numbers:
    """The newest numbers; everything up to `floor` counts as received."""

    __slots__ = ("floor", "heap", "seen")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.heap: list[int] = []
        self.seen: set[int] = set()

    def accept(self, number: int) -> bool:
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

"""Proof that a frame was written by somebody who knows the cluster secret. Pure.

The fabric's own password check proves the caller to the called, not the other way round. So every
frame also carries a tag made with a key that comes from the secret; a stranger whom this node
happens to dial can neither say anything nor pass anything on under another address.
"""

from __future__ import annotations

import hashlib
import hmac

TAG_BYTES = 16


class Seal:
    """Seals and opens frames of one namespace."""

    def __init__(self, secret: str, namespace: str) -> None:
        self.password = _derived(secret, "password", namespace)
        """For the fabric's own check; the secret itself never leaves this machine."""
        self.realm = hashlib.blake2b(namespace.encode(), digest_size=8).hexdigest()
        self._key = bytes.fromhex(_derived(secret, "frames", namespace))

    def close(self, address: str, body: bytes) -> bytes:
        """The frame for this address: tag, then body."""
        return self._tag(address, body) + body

    def open(self, address: str, frame: bytes) -> bytes | None:
        """The body; None when the frame was not sealed for this address with this secret."""
        body = frame[TAG_BYTES:]
        return body if hmac.compare_digest(frame[:TAG_BYTES], self._tag(address, body)) else None

    def _tag(self, address: str, body: bytes) -> bytes:
        tag = hashlib.blake2b(key=self._key, digest_size=TAG_BYTES)
        tag.update(address.encode())
        tag.update(b"\0")
        tag.update(body)
        return tag.digest()


def _derived(secret: str, use: str, namespace: str) -> str:
    text = f"skulk fabric\0{use}\0{namespace}".encode()
    return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()

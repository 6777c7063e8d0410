"""Keys for the connections between the ranks of one attempt of one group. Pure.

Every node derives them from the cluster secret by itself, so no key travels between nodes. A runner
gets its key in its first message, over its pipe: not by its arguments or its environment, which
other processes of the machine may read.
"""

import hashlib
import hmac
from dataclasses import dataclass, field

from skulkd.runner.protocol import TlsPaths
from skulkd.wire.ids import InstanceId

_SALT = b"skulk rank connections"
_KEY_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class RankSecurity:
    """What protects rank connections: the cluster secret, and the certificates of this node."""

    secret: str = field(repr=False)
    tls: TlsPaths | None = None

    def key(self, instance_id: InstanceId, attempt: int) -> str:
        """HKDF-SHA256 (RFC 5869) with one block of output; hex."""
        info = f"{instance_id}\0{attempt}".encode()
        return hkdf(self.secret.encode(), _SALT, info).hex()


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """One block, as long as the hash: extract, then expand."""
    extracted = hmac.new(salt, secret, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()[:_KEY_BYTES]

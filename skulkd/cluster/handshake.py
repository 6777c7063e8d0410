"""The hello frame that two nodes exchange first: names, versions, addresses. Pure.

Its format never changes: nodes of different versions detect by it that they are incompatible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skulkd.cluster.frames import Head, encode

PROTOCOL = (1, 0)
"""(major, minor). Nodes with another major do not join; a minor only adds keys."""


@dataclass(frozen=True, slots=True)
class NodeHello:
    name: str
    version: str
    addresses: tuple[str, ...] = ()
    protocol: tuple[int, int] = PROTOCOL

    def frame(self) -> bytes:
        return encode(
            "hello",
            name=self.name,
            version=self.version,
            addresses=list(self.addresses),
            protocol=list(self.protocol),
        )


def parse_hello(head: Head) -> NodeHello:
    """Parse leniently: missing or malformed values get defaults."""
    major, minor = 0, 0
    protocol = head.get("protocol")
    if isinstance(protocol, list) and len(protocol) >= 2:
        major, minor = (part if isinstance(part, int) else 0 for part in protocol[:2])
    addresses = head.get("addresses")
    known = addresses if isinstance(addresses, list) else []
    return NodeHello(
        str(head.get("name") or "a node without a name"),
        str(head.get("version") or "unknown"),
        tuple(one for one in known if isinstance(one, str))[:32],
        (major, minor),
    )


def same_daemon(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two lists of addresses belong to the same daemon, perhaps after a restart.

    One common address is not enough: container bridges have the same address on every machine.
    """
    here, there = set(one), set(other)
    return bool(here and there) and (here <= there or there <= here)


def incompatibility(hello: NodeHello, own: NodeHello) -> str | None:
    """Why a node with this hello cannot join; None when it can."""
    if hello.protocol[0] == own.protocol[0]:
        return None
    theirs, ours = (".".join(map(str, one.protocol)) for one in (hello, own))
    return (
        f"it runs skulkd {hello.version} with cluster protocol {theirs}, this node runs"
        f" {own.version} with {ours}; install the same version on both"
    )


def parse_protocol(text: str) -> tuple[int, int]:
    """`MAJOR.MINOR`. Raises ValueError."""
    major, _, minor = text.partition(".")
    return int(major), int(minor)

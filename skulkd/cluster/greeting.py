"""The first words between two nodes: names, versions, addresses. Pure.

This frame must stay readable for ever: by it nodes of different versions find out that they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skulkd.cluster.frames import Head, encode

PROTOCOL = (1, 0)
"""Nodes with another first number do not join; a larger second number only adds keys."""


@dataclass(frozen=True, slots=True)
class Greeting:
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


def read_greeting(head: Head) -> Greeting:
    """Whatever it says; what is missing or strange is left at a default."""
    major, minor = 0, 0
    protocol = head.get("protocol")
    if isinstance(protocol, list) and len(protocol) >= 2:
        major, minor = (part if isinstance(part, int) else 0 for part in protocol[:2])
    addresses = head.get("addresses")
    known = addresses if isinstance(addresses, list) else []
    return Greeting(
        str(head.get("name") or "a node without a name"),
        str(head.get("version") or "unknown"),
        tuple(one for one in known if isinstance(one, str))[:32],
        (major, minor),
    )


def same_place(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two lists of addresses are of one daemon, before and after a restart perhaps.

    One address in common proves nothing: every machine with containers has the same bridge.
    """
    here, there = set(one), set(other)
    return bool(here and there) and (here <= there or there <= here)


def why_not(greeting: Greeting, own: Greeting) -> str | None:
    """Why a node with this greeting cannot be a member; None when it can."""
    if greeting.protocol[0] == own.protocol[0]:
        return None
    theirs, ours = (".".join(map(str, one.protocol)) for one in (greeting, own))
    return (
        f"it runs skulkd {greeting.version} with cluster protocol {theirs}, this node runs"
        f" {own.version} with {ours}; install the same version on both"
    )


def parse_protocol(text: str) -> tuple[int, int]:
    """`MAJOR.MINOR`. Raises ValueError."""
    major, _, minor = text.partition(".")
    return int(major), int(minor)

"""Stacks of several ranks as one tree: each frame once, with the ranks that are in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_THREAD = re.compile(r"^Thread .*?(?:\"(?P<name>[^\"]*)\")?\s*$")
_FRAME = re.compile(r"^ {4}(?P<frame>\S.*)$")
MAIN = "MainThread"


@dataclass
class Frame:
    """A frame, the ranks that are in it, and what they have called from it."""

    name: str
    ranks: set[int] = field(default_factory=set)
    calls: dict[str, Frame] = field(default_factory=dict)

    def lines(self, depth: int = 0) -> Iterator[tuple[int, Frame]]:
        """This tree from the top, each frame with its depth; a chain stays at one depth."""
        for call in self.calls.values():
            yield depth, call
            # Only where ranks part does the tree go deeper: stacks are long.
            yield from call.lines(depth + (len(call.calls) > 1))


def threads_of(dump: str) -> dict[str, list[str]]:
    """The frames of each thread, outermost first, as py-spy prints them."""
    found: dict[str, list[str]] = {}
    frames: list[str] = []
    for line in dump.splitlines():
        if line.startswith("Thread "):
            match = _THREAD.match(line)
            frames = found.setdefault((match and match["name"]) or line, [])
        elif match := _FRAME.match(line):
            frames.insert(0, match["frame"])
    return {name: frames for name, frames in found.items() if frames}


def merge(stacks: Mapping[int, Sequence[str]]) -> Frame:
    """One tree of the stacks of these ranks, outermost frame first."""
    top = Frame("", set(stacks))
    for rank, frames in sorted(stacks.items()):
        here = top
        for name in frames:
            here = here.calls.setdefault(name, Frame(name))
            here.ranks.add(rank)
    return top


def main_stacks(dumps: Mapping[int, str]) -> dict[int, list[str]]:
    """The main thread of each rank; ranks without a readable stack are left out."""
    found = {}
    for rank, dump in dumps.items():
        threads = threads_of(dump)
        if threads:
            found[rank] = threads.get(MAIN) or next(iter(threads.values()))
    return found


def ranks_text(ranks: Sequence[int] | set[int]) -> str:
    """`[0,2-3]`."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][-1] + 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    shown = (f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
    return f"[{','.join(shown)}]"

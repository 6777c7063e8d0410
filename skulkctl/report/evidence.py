"""What a bundle's files say, rank by rank. Reads tolerantly: a missing file leaves a gap. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_FOLDER = re.compile(r"rank(?P<rank>\d+)-(?P<node>[^/]*)/(?P<file>.+)")
STACKS = ("py-spy-later.txt", "py-spy.txt", "sample.txt")
"""The later sample first: it is nearer to the moment of the verdict."""
LOGS = ("log.txt", "daemon-log.txt")


@dataclass(frozen=True)
class RankFiles:
    """The files of one rank."""

    rank: int
    node: str
    files: Mapping[str, bytes] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return self.files.get(name, b"").decode("utf-8", "replace").strip("\n")

    def document(self, name: str) -> Any:
        """None when there is no such file or it is no JSON."""
        try:
            return json.loads(self.files[name])
        except (KeyError, ValueError):
            return None

    def mapping(self, name: str) -> Mapping[str, Any]:
        found = self.document(name)
        return found if isinstance(found, Mapping) else {}

    def sequence(self, name: str) -> Sequence[Any]:
        found = self.document(name)
        return found if isinstance(found, list) else []

    @property
    def stacks(self) -> str:
        return next((self.text(name) for name in STACKS if "Thread " in self.text(name)), "")

    @property
    def no_stacks(self) -> str:
        """Why there are none."""
        tries = (self.text(name).lstrip("# ") for name in STACKS)
        return next((text.splitlines()[0] for text in tries if text), "the process was not sampled")


def ranks_in(members: Mapping[str, bytes]) -> list[RankFiles]:
    """The ranks of a bundle, in order."""
    found: dict[tuple[int, str], dict[str, bytes]] = {}
    for name, data in members.items():
        if match := _FOLDER.fullmatch(name):
            found.setdefault((int(match["rank"]), match["node"]), {})[match["file"]] = data
    return [RankFiles(rank, node, files) for (rank, node), files in sorted(found.items())]

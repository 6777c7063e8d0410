"""Finding known beginnings of a prompt without looking at every one that is kept. Pure.

Prompts are filed block by block in a tree: a search walks as many nodes as the prompt has blocks
in common with anything known, however many prompts there are.
"""

from collections.abc import Iterator

BLOCK = 16
# Prompts that have all their whole blocks in common: the newest are compared token by token.
_COMPARED = 8


class _Node:
    __slots__ = ("children", "ends", "through")

    def __init__(self) -> None:
        self.children: dict[tuple[int, ...], _Node] = {}
        self.through: dict[int, None] = {}
        self.ends: dict[int, None] = {}


class PrefixIndex:
    """Knows token lists by number."""

    def __init__(self) -> None:
        self._root = _Node()
        self._tokens: dict[int, list[int]] = {}

    def add(self, number: int, tokens: list[int]) -> None:
        self._tokens[number] = tokens
        node = self._root
        for block in _blocks(tokens):
            node = node.children.setdefault(block, _Node())
            node.through[number] = None
        node.ends[number] = None

    def remove(self, number: int) -> None:
        tokens = self._tokens.pop(number)
        path = [self._root]
        for block in _blocks(tokens):
            path.append(path[-1].children[block])
        path[-1].ends.pop(number)
        for parent, node, block in zip(path[:-1], path[1:], _blocks(tokens), strict=True):
            node.through.pop(number)
            if not node.through:
                del parent.children[block]
                return

    def contained(self, tokens: list[int]) -> list[int]:
        """Everything known that these tokens begin with, the longest last."""
        return [
            number
            for depth, node in enumerate(self._path(tokens))
            for number in sorted(node.ends, key=lambda n: len(self._tokens[n]))
            if _begins_with(tokens, self._tokens[number], depth * BLOCK)
        ]

    def closest(self, tokens: list[int]) -> tuple[int, int] | None:
        """The number with the longest common beginning, and its length; at least one block."""
        path = self._path(tokens)
        depth = len(path) - 1
        if depth == 0:
            return None
        newest = list(path[-1].through)[-_COMPARED:]
        return max(
            ((number, _common(self._tokens[number], tokens, depth * BLOCK)) for number in newest),
            key=lambda found: found[1],
        )

    def _path(self, tokens: list[int]) -> list[_Node]:
        path = [self._root]
        for block in _blocks(tokens):
            child = path[-1].children.get(block)
            if child is None:
                break
            path.append(child)
        return path


def _blocks(tokens: list[int]) -> Iterator[tuple[int, ...]]:
    for at in range(0, len(tokens) - BLOCK + 1, BLOCK):
        yield tuple(tokens[at : at + BLOCK])


def _common(one: list[int], other: list[int], known: int) -> int:
    """How many tokens both begin with, when the first `known` are the same."""
    limit = min(len(one), len(other))
    at = known
    while at < limit and one[at] == other[at]:
        at += 1
    return at


def _begins_with(tokens: list[int], beginning: list[int], known: int) -> bool:
    return tokens[known : len(beginning)] == beginning[known:] and len(beginning) <= len(tokens)

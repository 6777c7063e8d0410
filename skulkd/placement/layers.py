"""How the layers of a model are divided over a pipeline. Pure.

Shares follow the usable memory by largest remainder, each rank at least one layer. Rounding may
ask one node for a layer too many; then it goes where there is room, and if there is none the
nodes cannot hold the model.
"""

from __future__ import annotations

from collections.abc import Sequence


def split_layers(layers: int, usable: Sequence[int]) -> list[int] | None:
    """Layers of each rank in proportion to its memory; None when there are too few."""
    total = sum(usable)
    if not usable or layers < len(usable) or total <= 0 or min(usable) < 0:
        return None
    counts = [amount * layers // total for amount in usable]
    remainders = [amount * layers % total for amount in usable]
    by_remainder = sorted(range(len(usable)), key=lambda i: (-remainders[i], i))
    for index in by_remainder[: layers - sum(counts)]:
        counts[index] += 1
    for index, count in enumerate(counts):
        if count == 0:
            counts[counts.index(max(counts))] -= 1
            counts[index] = 1
    return counts


def keep_within(counts: Sequence[int], most: Sequence[int]) -> list[int] | None:
    """The nearest division in which no rank has more than it can hold; None when there is none."""
    if sum(most) < sum(counts) or min(most, default=0) < 1:
        return None
    kept = [min(count, limit) for count, limit in zip(counts, most, strict=True)]
    missing = sum(counts) - sum(kept)
    while missing:
        roomiest = max(range(len(kept)), key=lambda i: (most[i] - kept[i], -i))
        kept[roomiest] += 1
        missing -= 1
    return kept

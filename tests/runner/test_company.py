"""Waiting for those who come together: only as long as it pays, and never for nobody."""

from __future__ import annotations

import pytest

from skulkd.runner.company import Company


@pytest.mark.parametrize(
    ("before", "here", "coming", "taken"),
    [
        ([], 1, 9, 0),  # nothing is known: nobody is waited for
        ([1, 1, 1], 1, 9, 0),
        ([4, 4], 1, 9, 3),
        ([4, 4], 3, 9, 1),
        ([4, 4], 4, 9, 0),
        ([4, 4], 6, 9, 0),
        ([4, 4], 1, 2, 2),  # one stays away
        ([4, 4], 0, 9, 0),  # what came was no request, or was refused
        ([1, 8], 1, 9, 0),  # one burst is no habit
        ([8, 1], 1, 9, 0),
        ([8, 3], 1, 9, 2),
    ],
)
def test_as_many_are_waited_for_as_always_came_lately(
    before: list[int], here: int, coming: int, taken: int
) -> None:
    company = Company()
    for size in before:
        company.seen(size)
    took: list[float] = []

    def take_next(within_s: float) -> bool:
        if len(took) == coming:
            return False
        took.append(within_s)
        return True

    company.wait(lambda: here + len(took) if here else 0, take_next)
    assert len(took) == taken
    assert all(within_s > 0 for within_s in took)

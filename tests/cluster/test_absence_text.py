"""The reason that operators read when a placement is moved away from nodes that are gone."""

from __future__ import annotations

import pytest

from skulkd.cluster.placement_restorer import absence_text


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], "a node is no longer in the cluster"),
        (["kite2"], "kite2 is no longer in the cluster"),
        (["kite3", "kite2"], "kite3 and kite2 are no longer in the cluster"),
    ],
)
def test_the_verb_agrees_with_the_number_of_nodes(names: list[str], text: str) -> None:
    assert absence_text(names) == text

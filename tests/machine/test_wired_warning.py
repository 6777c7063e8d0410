"""The rule for wired memory that stayed behind (W7)."""

from __future__ import annotations

import pytest

from skulkd.machine.warnings import leaked_wired_warning
from skulkd.wire.base import Memory

GIB = 1024**3


@pytest.mark.parametrize(
    ("wired", "runner_alive", "warns"),
    [
        pytest.param(int(13.2 * GIB), False, True, id="leaked"),
        pytest.param(5 * GIB + 1, False, True, id="just above"),
        pytest.param(5 * GIB, False, False, id="limit itself"),
        pytest.param(int(13.2 * GIB), True, False, id="a runner holds it"),
        pytest.param(None, False, False, id="not reported"),
    ],
)
def test_leaked_wired_memory(wired: int | None, runner_alive: bool, warns: bool) -> None:
    memory = None if wired is None else Memory.of(wired)
    text = leaked_wired_warning(memory, runner_alive=runner_alive)
    assert (text is not None) == warns


def test_warning_tells_how_much_and_what_to_do() -> None:
    text = leaked_wired_warning(Memory.of(int(13.2 * GIB)), runner_alive=False)
    assert text is not None
    assert "leaked wired" in text
    assert "13.2 GiB" in text
    assert "reboot" in text

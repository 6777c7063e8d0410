"""Progress on stderr: bars on a terminal, few lines elsewhere."""

from __future__ import annotations

from io import StringIO

import pytest

from skulkctl.output.progress import Part, Progress, Transfer, fraction_of, transfer_text

MIB = 1024**2


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Screen(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_per_part_and_is_left_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    screen = Screen()
    with Progress(stream=screen) as progress:
        parts = [
            Part("kite1", "staging", 2 * MIB, 8 * MIB),
            Part("kite2", "loading", 3, 24, "layers"),
        ]
        progress.show("load", "not for a terminal", parts, title="Placing a model\n\x1b[31m")
    drawn = screen.getvalue()
    for text in ("Placing a model ?[31m", "kite1", "staging", "kite2", "3/24 layers"):
        assert text in drawn
    assert "not for a terminal" not in drawn
    assert drawn.rstrip().endswith("\x1b[2K") or drawn.endswith("\x1b[?25h")


def test_a_pipe_gets_a_line_for_each_tenth_and_each_ten_seconds() -> None:
    pipe, clock = StringIO(), Clock()
    with Progress(stream=pipe, clock=clock) as progress:

        def show(percent: int) -> None:
            progress.show("copy", f"{percent} %", [Part("kite1", "copy", percent, 100)])

        for percent in range(0, 31, 5):
            show(percent)
        clock.now += 9
        show(31)
        clock.now += 1
        show(32)
        clock.now += 10
        show(32)
        progress.show("done", "finished")
    assert pipe.getvalue() == "0 %\n10 %\n20 %\n30 %\n32 %\nfinished\n"


def test_quiet_and_terminal_only_progress_writes_nothing() -> None:
    pipe, screen = StringIO(), Screen()
    Progress(stream=pipe, on_pipes=False).show("a", "b")
    Progress(True, stream=screen).show("a", "b")
    assert pipe.getvalue() + screen.getvalue() == ""


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], None),
        ([Part("a", "x", 1, 4)], 0.25),
        ([Part("a", "x", 1, 4), Part("b", "x", 3, 4)], 0.5),
        ([Part("a", "x", 1, 4), Part("b", "load", 9, 10, "layers")], 0.25),
        ([Part("a", "x")], None),
    ],
)
def test_the_fraction_is_known_only_when_every_part_is(
    parts: list[Part], expected: float | None
) -> None:
    assert fraction_of(parts) == expected


@pytest.mark.parametrize(
    ("done", "total", "rate", "expected"),
    [
        (0, None, None, "copying: 0 B"),
        (3 * MIB, None, MIB, "copying: 3.0 MiB, 1.0 MiB/s"),
        (MIB, 4 * MIB, MIB, "copying 25 %: 1.0 MiB of 4.0 MiB, 1.0 MiB/s, 3.0s left"),
        (4 * MIB, 4 * MIB, MIB, "copying 100 %: 4.0 MiB of 4.0 MiB, 1.0 MiB/s"),
    ],
)
def test_a_transfer_tells_bytes_rate_and_time_left(
    done: int, total: int | None, rate: float | None, expected: str
) -> None:
    assert transfer_text("copying", done, total, rate) == expected


def test_the_rate_is_of_the_last_seconds_and_of_one_phase() -> None:
    clock = Clock()
    transfer = Transfer(clock)
    transfer.text("x", 0, None)
    clock.now += 20
    transfer.text("x", 100 * MIB, None)
    clock.now += 1
    assert transfer.text("x", 101 * MIB, None) == "x: 101.0 MiB, 1.0 MiB/s"
    clock.now += 1
    assert transfer.text("y", 0, 5) == "y 0 %: 0 B of 5 B"

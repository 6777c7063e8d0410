"""Progress on stderr: a line that is drawn over on a terminal, few lines elsewhere."""

from __future__ import annotations

from io import StringIO

import pytest

from skulkctl.progress import ProgressLine, Transfer, bar, transfer_text

MIB = 1024**2


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Screen(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_line_that_vanishes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    screen, clock = Screen(), Clock()
    with ProgressLine(stream=screen, clock=clock) as line:
        line.show("load", "loading 1/2", 0.5)
        line.show("load", "too soon to be drawn", 0.6)
        clock.now += 1
        line.show("load", "x" * 99)
    assert screen.getvalue() == (
        "\r[##########----------] loading 1/2\x1b[K" + "\r" + "x" * 39 + "\x1b[K" + "\r\x1b[K"
    )


def test_a_new_stage_is_drawn_at_once() -> None:
    screen = Screen()
    line = ProgressLine(stream=screen, clock=Clock())
    line.show("load", "loading")
    line.show("warm", "warming up\n\x1b[31m")
    assert "warming up ?[31m" in screen.getvalue()


def test_a_pipe_gets_a_line_for_each_tenth_and_each_ten_seconds() -> None:
    pipe, clock = StringIO(), Clock()
    with ProgressLine(stream=pipe, clock=clock) as line:
        for percent in range(0, 31, 5):
            line.show("copy", f"{percent} %", percent / 100)
        clock.now += 9
        line.show("copy", "31 %", 0.31)
        clock.now += 1
        line.show("copy", "32 %", 0.32)
        clock.now += 10
        line.show("copy", "32 %", 0.32)
        line.show("done", "finished")
    assert pipe.getvalue() == "0 %\n10 %\n20 %\n30 %\n32 %\nfinished\n"


def test_quiet_and_terminal_only_lines_say_nothing() -> None:
    pipe, screen = StringIO(), Screen()
    ProgressLine(stream=pipe, on_pipes=False).show("a", "b")
    ProgressLine(True, stream=screen).show("a", "b")
    assert pipe.getvalue() + screen.getvalue() == ""


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


@pytest.mark.parametrize(("fraction", "filled"), [(0, 0), (0.5, 10), (1, 20), (1.5, 20), (-1, 0)])
def test_a_bar_never_leaves_its_frame(fraction: float, filled: int) -> None:
    assert bar(fraction) == f"[{'#' * filled}{'-' * (20 - filled)}]"

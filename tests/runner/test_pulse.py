"""A pulse every second at work, one when it is over, none that waits for the pipe."""

from __future__ import annotations

from skulkd.runner.protocol import Pulse
from skulkd.runner.watchdog import PulseSender
from tests.runner.test_phases import Sink, a_recorder, written


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Wire:
    """Takes pulses, unless it is full."""

    def __init__(self) -> None:
        self.sent: list[Pulse] = []
        self.full = False

    def take(self, pulse: Pulse) -> bool:
        if not self.full:
            self.sent.append(pulse)
        return not self.full


def test_one_pulse_a_second_while_busy_and_one_at_the_end() -> None:
    clock, wire = Clock(), Wire()
    heart = PulseSender(a_recorder(Sink()), wire.take, clock)
    heart.tick(busy=False)
    assert wire.sent == []
    for _ in range(9):
        heart.tick(busy=True)
        clock.now += 0.25
    assert [pulse.busy for pulse in wire.sent] == [True, True, True]
    for _ in range(8):
        heart.tick(busy=False)
        clock.now += 0.25
    assert [pulse.busy for pulse in wire.sent][3:] == [False]


def test_an_end_that_found_the_pipe_full_is_told_later() -> None:
    clock, wire = Clock(), Wire()
    heart = PulseSender(a_recorder(Sink()), wire.take, clock)
    heart.tick(busy=True)
    wire.full = True
    heart.tick(busy=False)
    wire.full = False
    heart.tick(busy=False)
    heart.tick(busy=False)
    assert [pulse.busy for pulse in wire.sent] == [True, False]


def test_the_innermost_wait_shows_and_every_wait_counts() -> None:
    sink, wire = Sink(), Wire()
    recorder = a_recorder(sink)
    heart = PulseSender(recorder, wire.take, Clock())
    recorder.step = 7
    with recorder.wait("pipeline_step", entry="late"):
        with recorder.wait("pipeline_first_eval_recv"):
            heart.tick(busy=True)
        assert recorder.waiting is not None
        assert recorder.waiting.detail == "pipeline_step"
    assert recorder.waiting is None
    assert (wire.sent[0].step, wire.sent[0].site) == (7, "pipeline_first_eval_recv")
    assert recorder.moves == 2
    assert written(sink) == []


def test_details_are_written_only_where_they_are_asked_for() -> None:
    sink = Sink()
    recorder = a_recorder(sink)
    recorder.details = True
    with recorder.wait("pipeline_step", entry="late"), recorder.wait("mx_barrier", entry="never"):
        recorder.show_long_wait(-1.0)
        with recorder.wait("pipeline_last_send"):
            pass
    assert [(p.entry.event, p.entry.detail) for p in sink.offered] == [
        ("enter", "pipeline_last_send"),
        ("exit", "pipeline_last_send"),
    ]
    sink.offered.clear()
    with recorder.wait("pipeline_step", entry="late"):
        recorder.show_long_wait(-1.0)
    assert [(p.entry.event, p.entry.detail) for p in sink.offered] == [
        ("enter", "pipeline_step"),
        ("exit", "pipeline_step"),
    ]

"""The newest pulse of a runner, and how long nothing in it has changed. By the owner's clock."""

from collections.abc import Callable

from skulkd.runner.protocol import Pulse
from skulkd.wire.timeline import RunnerLive


class PulseView:
    """`clock` is monotonic and ours: the runner's own clock may have stopped with it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pulse: Pulse | None = None
        self._heard_at = self._moved_at = clock()

    def restart(self) -> None:
        """A new process has not said anything yet."""
        self._pulse = None

    def take(self, pulse: Pulse) -> None:
        before, self._pulse = self._pulse, pulse
        self._heard_at = self._clock()
        if before is None or (before.step, before.moves) != (pulse.step, pulse.moves):
            self._moved_at = self._heard_at

    def shown(self) -> RunnerLive | None:
        """As the timeline tells it; None when the process has no pulse yet."""
        pulse, now = self._pulse, self._clock()
        if pulse is None:
            return None
        silent_s = now - self._heard_at
        return RunnerLive(
            busy=pulse.busy,
            step=pulse.step,
            moves=pulse.moves,
            site=pulse.site,
            site_seconds=0.0 if pulse.site is None else pulse.site_s + silent_s,
            silent_seconds=silent_s,
            still_seconds=now - self._moved_at,
        )

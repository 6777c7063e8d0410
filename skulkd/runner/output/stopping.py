"""Stop strings in streamed text. Pure: no tokens, no MLX."""

from collections.abc import Sequence


def held_back(text: str, markers: Sequence[str]) -> int:
    """Length of the longest end of `text` that may be the beginning of a marker."""
    longest = max((len(marker) for marker in markers), default=0) - 1
    for length in range(min(longest, len(text)), 0, -1):
        tail = text[-length:]
        if any(marker.startswith(tail) for marker in markers):
            return length
    return 0


def first_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the text is cut: at the stop that is complete first, at its longest form."""
    found = [(at + len(stop), at) for stop in stops if (at := text.find(stop)) >= 0]
    return min(found)[1] if found else None


class StopMatcher:
    """Passes text on until a stop string is complete; never shows a part of one."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.stopped = False
        self.matched: str | None = None
        """The stop string that was completed."""

    def push(self, text: str) -> str:
        """Text that is safe to show now; nothing more once `stopped`."""
        if not self._stops:
            return text
        if self.stopped:
            return ""
        text = self._held + text
        cut = first_stop(text, self._stops)
        if cut is not None:
            self.stopped = True
            self.matched = max((s for s in self._stops if text.startswith(s, cut)), key=len)
            self._held = ""
            return text[:cut]
        keep = len(text) - held_back(text, self._stops)
        self._held = text[keep:]
        return text[:keep]

    def finish(self) -> str:
        """The rest, when generation ended and no stop was completed."""
        rest, self._held = self._held, ""
        return rest

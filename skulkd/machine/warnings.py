"""Warnings that follow from readings of this machine alone. Pure."""

from skulkd.wire.base import Memory

LEAKED_WIRED_BYTES = 5 * 1024**3


def leaked_wired_warning(wired: Memory | None, *, runner_alive: bool) -> str | None:
    """Say that wired memory stayed behind after its runner, or None.

    `wired` is None where the system does not report it (every system but macOS).
    """
    if wired is None or runner_alive or wired.in_bytes <= LEAKED_WIRED_BYTES:
        return None
    return (
        f"leaked wired memory: {wired.in_bytes / 1024**3:.1f} GiB is wired although no runner is"
        " alive; it does not come back by itself, reboot this machine before placing a model"
    )

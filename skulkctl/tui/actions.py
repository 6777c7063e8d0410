"""What a screen may do to the cluster, behind one seam; the screens know no HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from skulkctl.verdict.ranks import Group, Rank

if TYPE_CHECKING:
    from skulkctl.contexts import Target


class Actions(Protocol):
    """Each may take seconds and raises CliError."""

    def capture(self, group: Group, rank: Rank | None) -> Path:
        """Write a bundle of this rank, or of all ranks; where it is."""
        ...

    def cancel(self, group: Group, task_id: str) -> str:
        """Tell every rank to drop the task; what they said."""
        ...

    def log_lines(self, rank: Rank) -> list[str]:
        """The last lines that this rank's process printed."""
        ...


class LiveActions:
    """Asks the daemons."""

    def __init__(self, target: Target, timeout_s: float, directory: Path) -> None:
        self._target = target
        self._timeout_s = timeout_s
        self._directory = directory

    def capture(self, group: Group, rank: Rank | None) -> Path:
        from skulkctl.capturing import capture_ranks

        chosen = group.ranks if rank is None else (rank,)
        return capture_ranks(self._target, group, chosen, self._directory).path

    def cancel(self, group: Group, task_id: str) -> str:
        from skulkctl.capturing import cancel_everywhere
        from skulkctl.client import Client

        return cancel_everywhere(Client(self._target, self._timeout_s), group, task_id)

    def log_lines(self, rank: Rank) -> list[str]:
        from skulkctl.client import Client
        from skulkctl.log_lines import runner_lines

        return runner_lines(Client(self._target, self._timeout_s), rank.node_id, rank.runner_id)

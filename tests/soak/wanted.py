"""What was asked of the cluster and acknowledged, and so must stand at the end of a chaos run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from skulkd.settings.load import check_config_text


@dataclass
class Wanted:
    """Placements by id and settings by node; what was asked and not answered may be or not."""

    placed: dict[str, str] = field(default_factory=dict)
    """Instance id and model."""
    deleted: set[str] = field(default_factory=set)
    perhaps: set[str] = field(default_factory=set)
    """Deletions without an answer."""
    unanswered: int = 0
    """Placements without an answer; their ids are not known."""
    days: dict[Path, set[int]] = field(default_factory=dict)
    """Values of a setting, by the home of the node, of which one must be there."""

    def wrong_placements(self, found: dict[str, str]) -> str | None:
        """What is wrong with these instances; None when nothing is."""
        missing = self.placed.keys() - found.keys()
        risen = self.deleted & found.keys()
        unknown = found.keys() - self.placed.keys() - self.perhaps - risen
        if missing or risen or len(unknown) > self.unanswered:
            return f"missing {missing}, back after deletion {risen}, unknown {unknown}"
        return None

    def write(self, home: Path, days: int) -> None:
        """A value is about to be written."""
        self.days.setdefault(home, {days_in(home)}).add(days)

    def written(self, home: Path, days: int) -> None:
        """It was acknowledged."""
        self.days[home] = {days}

    def wrong_settings(self) -> list[str]:
        return [
            f"{home.name} has {found}, acknowledged was one of {sorted(allowed)}"
            for home, allowed in self.days.items()
            if (found := days_in(home)) not in allowed
        ]


def days_in(home: Path) -> int:
    """The setting that chaos changes."""
    file = home / "skulk.yaml"
    return check_config_text(file.read_bytes(), file).tracing.retention_days

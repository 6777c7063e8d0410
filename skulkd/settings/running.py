"""The settings this daemon runs with, and those the next start would find.

Reads the settings file; knows no HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from skulkd.settings.load import Settings, find_config_file, load_settings
from skulkd.settings.paths import Paths

MIB = 1024**2
LIVE_KEYS = frozenset({"tracing.retention_days"})
"""Read again when they are used; all other settings are those of the start."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the settings came from at the start, so that they can be read again the same way."""

    paths: Paths
    environ: Mapping[str, str]
    flags: Mapping[str, object]
    config_file: Path | None
    hostname: str
    cwd: Path

    def load(self) -> Settings:
        """Raises SettingsError. Blocking."""
        return load_settings(
            self.paths, self.environ, self.flags, self.config_file, self.hostname, self.cwd
        )

    def find_file(self) -> Path:
        """The file that holds the settings, or would."""
        return find_config_file(self.paths, self.environ, self.config_file, self.cwd)[0]


@dataclass(frozen=True, slots=True)
class RunningSettings:
    """What was in force when the daemon started, and how to look again."""

    started: Settings
    sources: Sources
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def max_body_bytes(self) -> int:
        return self.started.config.api.max_body_mib * MIB

    def values_in_force(self, current: Settings) -> dict[str, object]:
        """Every value this daemon works with, where `current` is what the sources say now."""
        live = {key: value for key, value in current.values() if key in LIVE_KEYS}
        return {**dict(self.started.values()), **live}

    def origin_in_force(self, key: str, current: Settings) -> str:
        """Where the value of `values_in_force` came from."""
        return (current if key in LIVE_KEYS else self.started).origin_text(key)

    def differs_from_start(self) -> bool:
        """Whether a restart would change anything. Raises SettingsError. Blocking."""
        current = self.sources.load()
        return dict(current.values()) != self.values_in_force(current)

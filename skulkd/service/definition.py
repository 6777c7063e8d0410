"""What a service runs, as whom and with which environment. Pure; knows no service manager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OPEN_FILES = 65_535
STOP_SECONDS = 20
"""The daemon stops within 9 s by itself; nothing should kill it before that."""
RESTART_SECONDS = 5
BAD_CONFIGURATION = 78
"""The exit code after which a start would only fail again."""

SYSTEM_VARIABLES = ("SKULK_HOME", "SKULK_MODELS_DIR")
USER_VARIABLES = (*SYSTEM_VARIABLES, "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")


@dataclass(frozen=True, slots=True)
class Account:
    """The user that the daemon runs as."""

    name: str
    uid: int
    home: Path

    @property
    def is_root(self) -> bool:
        return self.uid == 0


@dataclass(frozen=True, slots=True)
class Service:
    """One installed daemon. Holds no secret: units are readable by everyone."""

    command: Sequence[str]
    environment: Mapping[str, str]
    account: Account
    system: bool
    secrets_file: Path
    """Variables that must not be in a unit, such as HF_TOKEN; read at the start if it exists."""


def kept_environment(environ: Mapping[str, str], *, system: bool) -> dict[str, str]:
    """The variables that decide where the files of the daemon are."""
    names = SYSTEM_VARIABLES if system else USER_VARIABLES
    return {name: environ[name] for name in names if environ.get(name)}


def dropped_variables(environ: Mapping[str, str], settings: Sequence[str]) -> list[str]:
    """Names of variables that set something in this shell and will not in the service."""
    return [name for name in settings if environ.get(name)]

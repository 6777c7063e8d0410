"""The files of a gateway node: state, runtime token, machine id. 0600, replaced whole.

The names and shapes are the reference's, so that a node can be moved between the two.
"""

from __future__ import annotations

import json
import os
import stat
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skulkd.settings.files import create_atomic, make_private_dir, write_atomic
from skulkd.swarm.errors import ConfigError
from skulkd.swarm.js_values import optional_text
from skulkd.swarm.node_config import PREFIX, State

PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """Where the files are. Nothing is created before something is written."""

    state_file: Path
    token_file: Path
    machine_file: Path
    jobs_dir: Path

    @classmethod
    def find(cls, home: Path, environ: Mapping[str, str]) -> NodeFiles:
        """Below `home`, unless the reference's variables say otherwise."""

        def place(name: str, default: Path) -> Path:
            text = optional_text(environ.get(f"{PREFIX}{name}"))
            return Path(text).expanduser() if text else default

        return cls(
            place("NODE_STATE_PATH", home / "config.json"),
            place("NODE_KEY_PATH", home / "node.key"),
            place("MACHINE_ID_PATH", home / "machine.id"),
            home / "jobs",
        )

    def read_state(self) -> State:
        """Empty when there is none. Raises ConfigError when it cannot be used."""
        try:
            found = json.loads(self.state_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.state_file} cannot be read: {error}") from error
        if not isinstance(found, dict):
            raise ConfigError(f"{self.state_file} does not hold an object")
        return found

    def write_state(self, state: Mapping[str, Any]) -> None:
        text = json.dumps(dict(state), ensure_ascii=False, indent=2)
        _write(self.state_file, f"{text}\n")

    def read_token(self) -> str | None:
        try:
            return optional_text(self.token_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.token_file} cannot be read: {error}") from error

    def write_token(self, token: str) -> None:
        _write(self.token_file, f"{token}\n")

    def machine_id(self) -> str:
        """A random id of this installation; made on first use."""
        make_private_dir(self.machine_file.parent)
        create_atomic(self.machine_file, f"{uuid.uuid4()}\n".encode(), mode=PRIVATE)
        found = optional_text(self.machine_file.read_text(encoding="utf-8"))
        if found is None:
            raise ConfigError(f"{self.machine_file} is empty; delete it to get a new machine id")
        return found

    def forget(self) -> None:
        """Delete all that authenticates this node. The machine id stays: it is no secret."""
        for file in (self.token_file, self.state_file):
            file.unlink(missing_ok=True)

    def too_open(self) -> list[str]:
        """Files that others may read, for the operator."""
        return [
            f"{file} can be read by others; run: chmod 600 {file}"
            for file in (self.state_file, self.token_file)
            if _mode(file) & 0o077
        ]


def _write(file: Path, text: str) -> None:
    make_private_dir(file.parent)
    write_atomic(file, text.encode(), mode=PRIVATE)


def _mode(file: Path) -> int:
    try:
        return stat.S_IMODE(os.stat(file).st_mode)  # noqa: PTH116 - one call for any owner
    except OSError:
        return 0

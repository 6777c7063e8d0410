"""What an installation does, as data: the same steps are printed by a dry run and carried out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from skulkd.service.definition import Service


@dataclass(frozen=True, slots=True)
class Write:
    """Replace a file."""

    file: Path
    text: str

    def lines(self) -> Iterator[str]:
        yield f"write {self.file} (mode 0644):"
        yield from (f"    {line}".rstrip() for line in self.text.splitlines())


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete a file, if it is there."""

    file: Path

    def lines(self) -> Iterator[str]:
        yield f"remove {self.file}"


@dataclass(frozen=True, slots=True)
class Run:
    """Run a command of the service manager."""

    argv: Sequence[str]
    may_fail: bool = False
    """It fails when there is nothing to do."""

    def lines(self) -> Iterator[str]:
        yield f"run {shlex.join(self.argv)}{'   (may fail)' if self.may_fail else ''}"


Step = Write | Remove | Run


class Manager(Protocol):
    """A service manager, as far as its files and its commands differ from the other one's."""

    @property
    def name(self) -> str: ...

    @property
    def program(self) -> str:
        """The command that the steps run; without it there is no such manager here."""
        ...

    def file(self, service: Service) -> Path:
        """Where the definition of the service is stored."""
        ...

    def render(self, service: Service) -> str: ...

    def start(self, service: Service, *, changed: bool) -> list[Step]:
        """After the file was written, or found as it should be."""
        ...

    def remove(self, service: Service) -> list[Step]: ...

    def status(self, service: Service) -> list[str]: ...

    def logs(self, service: Service, lines: int, *, follow: bool) -> list[str]: ...


def install_steps(manager: Manager, service: Service, present: str | None) -> list[Step]:
    """Everything that is missing. `present` is the text of the file, if there is one."""
    text = manager.render(service)
    changed = text != present
    writes: list[Step] = [Write(manager.file(service), text)] if changed else []
    return [*writes, *manager.start(service, changed=changed)]

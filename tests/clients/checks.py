"""Calls of real clients, each of which is a test and a row of the table in docs/clients.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.inference.served import Served

HUB_MODEL = "org/other-model"
Run = Callable[[Served], object]


@dataclass(frozen=True)
class Check:
    """One call of one client; `run` fails unless the client got what it wants."""

    client: str
    call: str
    run: Run

    @property
    def label(self) -> str:
        return f"{self.client}: {self.call}"


CHECKS: list[Check] = []


def check(client: str, call: str) -> Callable[[Run], Run]:
    """Register the decorated function as the check of this call."""

    def keep(run: Run) -> Run:
        CHECKS.append(Check(client, call, run))
        return run

    return keep


def rows(checks: list[Check]) -> dict[str, str]:
    """The row of docs/clients.md for each client, with its calls that work."""
    calls: dict[str, list[str]] = {}
    for one in checks:
        calls.setdefault(one.client, []).append(one.call)
    return {name: f"| {name} | {'; '.join(found)} |\n" for name, found in calls.items()}

"""Confirmation prompts: on stderr, and only when stdin is a terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from skulkctl.cli import Confirmation, Invocation
from skulkctl.errors import NotConfirmed
from skulkctl.output.terminal import printable


@dataclass(frozen=True)
class Danger:
    """The change to confirm. With a `name`, the user must type that name instead of `y`."""

    what: str
    name: str | None = None
    why: tuple[str, ...] = ()


def confirm(call: Invocation, danger: Danger) -> None:
    """Return when the user agrees; raises NotConfirmed otherwise. Nothing has happened then."""
    given = call.options(Confirmation)
    if danger.name is None:
        if given.yes or given.confirm:
            return
        flag = "--yes"
    else:
        if given.confirm == danger.name:
            return
        flag = f"--confirm {danger.name}"
        if given.confirm:
            raise NotConfirmed(
                f"--confirm {given.confirm} does not match {danger.name}",
                *danger.why,
                hints=[f"add  {flag}"],
            )
    if not sys.stdin.isatty():
        raise NotConfirmed(
            f"not confirmed: {danger.what}",
            *danger.why,
            "stdin is not a terminal, so skulkctl cannot prompt for confirmation",
            hints=[f"add  {flag}"],
        )
    _ask(danger)


def protect(call: Invocation, what: str, otherwise: Danger | None = None) -> None:
    """Ask for the context's name when it is protected; else ask for `otherwise`, if anything."""
    context = call.target.context
    if context.protected:
        why = (f"context {context.name} is protected",)
        confirm(call, Danger(what, name=context.name, why=why))
    elif otherwise is not None:
        confirm(call, otherwise)


def _ask(danger: Danger) -> None:
    lines = [danger.what, *(f"  {line}" for line in danger.why)]
    for line in lines:
        sys.stderr.write(f"{printable(line)}\n")
    question = "continue? [y/N] " if danger.name is None else f"type {danger.name} to continue: "
    sys.stderr.write(question)
    sys.stderr.flush()
    try:
        typed = sys.stdin.readline().strip()
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        raise
    agreed = typed.lower() in ("y", "yes") if danger.name is None else typed == danger.name
    if not agreed:
        raise NotConfirmed("declined, nothing changed")

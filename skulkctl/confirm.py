"""Asking before something is changed: on stderr, and only when a person can answer."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from skulkctl.errors import NotConfirmed
from skulkctl.invocation import Invocation
from skulkctl.screen import printable


@dataclass(frozen=True)
class Danger:
    """What is about to happen. With a `name` it is severe and the name must be typed."""

    what: str
    name: str | None = None
    why: tuple[str, ...] = ()


def confirm(call: Invocation, danger: Danger) -> None:
    """Return when the user agrees; raises NotConfirmed otherwise. Nothing has happened then."""
    if danger.name is None:
        if call.options.get("yes") or call.options.get("confirm"):
            return
        flag = "--yes"
    else:
        if call.options.get("confirm") == danger.name:
            return
        flag = f"--confirm {danger.name}"
        if call.options.get("confirm"):
            raise NotConfirmed(
                f"--confirm {call.options['confirm']} is not the name that is needed",
                *danger.why,
                hints=[f"add  {flag}"],
            )
    if not sys.stdin.isatty():
        raise NotConfirmed(
            f"not confirmed: {danger.what}",
            *danger.why,
            "stdin is not a terminal, so nobody can be asked",
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
    question = "go on? [y/N] " if danger.name is None else f"type {danger.name} to go on: "
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

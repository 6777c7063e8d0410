"""How names and id prefixes on the command line are resolved. Pure.

A whole id or name always counts. Otherwise the beginning of an id or name counts, if only one
thing begins so. A command that changes or ends something is stricter: there the beginning must
have at least four characters, and the command says what it matched. Letter case does not matter.
It must not know any kind of thing that has a name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from skulkctl.errors import UsageMistake

MIN_PREFIX = 4
MAX_LISTED = 12
"""So many candidates fit on a small screen together with the error."""

T = TypeVar("T")
Note = Callable[[str], None]


class Candidate(NamedTuple, Generic[T]):
    """Something that can be meant: its ids, its names, and how it is told to people."""

    item: T
    ids: tuple[str, ...]
    names: tuple[str, ...]
    label: str


def find_one(
    kind: str, candidates: Sequence[Candidate[T]], typed: str, note: Note | None = None
) -> T | None:
    """What was meant by `typed`; None when nothing matches.

    `note` is given by commands that change something: it makes the rule strict and receives a
    line about what was matched. Raises UsageMistake when several things match, or too little
    was typed for a change.
    """
    whole = _whole(candidates, typed)
    if whole:
        return _only(kind, whole, typed).item
    found = [each for each in candidates if _begins((*each.ids, *each.names), typed)]
    if not found:
        return None
    if note is None:
        return _only(kind, found, typed).item
    if len(typed) < MIN_PREFIX:
        raise UsageMistake(
            f"{typed} is too short to identify the {kind} to change",
            *_labels(found),
            hints=[f"type at least {MIN_PREFIX} characters, or the full name"],
        )
    chosen = _only(kind, found, typed)
    note(f"{typed} matches {kind} {chosen.label}")
    return chosen.item


def _whole(candidates: Sequence[Candidate[T]], typed: str) -> list[Candidate[T]]:
    """Those with exactly this id or name; the same letter case is the better match."""
    exact = [each for each in candidates if typed in (*each.ids, *each.names)]
    wanted = typed.casefold()
    return exact or [
        each for each in candidates if wanted in map(str.casefold, (*each.ids, *each.names))
    ]


def _begins(texts: Sequence[str], typed: str) -> bool:
    wanted = typed.casefold()
    return bool(wanted) and any(text.casefold().startswith(wanted) for text in texts)


def _only(kind: str, found: Sequence[Candidate[T]], typed: str) -> Candidate[T]:
    if len(found) > 1:
        raise UsageMistake(
            f"{typed} matches {len(found)} {kind}s",
            *_labels(found),
            hints=["type more of the name or id"],
        )
    return found[0]


def _labels(found: Sequence[Candidate[T]]) -> list[str]:
    shown = [candidate.label for candidate in found[:MAX_LISTED]]
    more = len(found) - len(shown)
    return [*shown, f"and {more} more"] if more else shown


def model_aliases(model_id: str) -> tuple[str, ...]:
    """The names of a model: its id, and the part after the slash."""
    return tuple(dict.fromkeys((model_id, model_id.rpartition("/")[2])))

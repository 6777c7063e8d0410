"""From the JSON of an answer to a wire model, tolerantly: a newer or a stock node may say more,
less, or a word that this version does not know.

Unknown keys are ignored. A part that does not match its model is left out when the model can do
without it, and `-v` names it. It must not know any particular model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from skulkctl.daemon.answers import Answer, not_a_node, read_json
from skulkctl.errors import ServerFailed

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound="BaseModel")
T = TypeVar("T")
Note = Callable[[str], None]

_MOST_LEFT_OUT = 1000
_NOTHING = object()


class Unreadable(Exception):
    """The document is not what the model describes, and leaving parts out does not help."""


def read_answer(answer: Answer, model: type[M]) -> M:
    """The model of a good answer. Raises the CliError of a bad one, or Unreachable."""
    document = read_json(answer)
    try:
        return read_model(model, document, answer.note)
    except Unreadable as error:
        why = f"its answer to {answer.request} is no {model.__name__}: {error}"
        if not answer.request.changes:
            raise not_a_node(answer, why) from None
        raise ServerFailed(
            f"{answer.endpoint} accepted {answer.request}, but its answer cannot be read",
            why,
            hints=["check before you repeat it:  skulkctl status"],
            details=answer.details(),
        ) from None


def read_model(model: type[M], document: object, note: Note) -> M:
    """Raises Unreadable."""
    return validate(lambda data: model.model_validate(data, extra="ignore"), document, note)


def validate(check: Callable[[Any], T], document: object, note: Note) -> T:
    """The result of `check`, with the parts left out that it does not accept.

    Raises Unreadable when what is left is still not accepted.
    """
    from pydantic import ValidationError

    for _ in range(_MOST_LEFT_OUT):
        try:
            return check(document)
        except ValidationError as error:
            document = _without_first_bad_part(document, error, note)
    raise Unreadable("too much of it does not match")


def _without_first_bad_part(document: object, error: ValidationError, note: Note) -> object:
    """A copy without what the first error is about; the caller's document stays whole."""
    # One at a time: leaving out an item of a list moves those behind it.
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = list(problem["loc"])
    if problem["type"] == "missing":
        # What lacks a required key is not usable as a whole.
        place = place[:-1]
    found = _existing(document, place)
    if not found:
        raise Unreadable(f"{'.'.join(map(str, problem['loc'])) or 'it'}: {problem['msg']}")
    note(f"left out {'.'.join(map(str, found))}: {problem['msg']}")
    return _without(document, found)


def _existing(document: object, place: Sequence[int | str]) -> list[int | str]:
    """The part of a location that exists in the document; pydantic also names union variants."""
    found: list[int | str] = []
    for key in place:
        inside = _child(document, key)
        if inside is not _NOTHING:
            document = inside
            found.append(key)
    return found


def _child(document: object, key: int | str) -> object:
    if isinstance(document, Mapping):
        return document.get(key, _NOTHING)
    if isinstance(document, list) and isinstance(key, int) and key < len(document):
        return document[key]
    return _NOTHING


def _without(document: object, place: Sequence[int | str]) -> object:
    key, *rest = place
    if isinstance(document, Mapping):
        if not rest:
            return {name: value for name, value in document.items() if name != key}
        return {**document, str(key): _without(document[str(key)], rest)}
    if isinstance(document, list) and isinstance(key, int):
        replaced = [] if not rest else [_without(document[key], rest)]
        return [*document[:key], *replaced, *document[key + 1 :]]
    return document

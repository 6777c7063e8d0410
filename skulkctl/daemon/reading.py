"""From the JSON of an answer to a wire model, tolerantly: a newer or a stock node may say more,
less, or a word that this version does not know.

Unknown keys are ignored. A part that does not match its model is left out when the model can do
without it, and `-v` names it. It must not know any particular model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from skulkctl.daemon.answers import Answer, not_a_node, raise_for_status, read_json
from skulkctl.errors import ServerFailed

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound="BaseModel")
T = TypeVar("T")
Note = Callable[[str], None]

Place = tuple[int | str, ...]
"""Where something is in a document: keys and positions, outermost first."""

_MOST_ROUNDS = 20
_NOTHING = object()


class Unreadable(Exception):
    """The document is not what the model describes, and leaving parts out does not help."""


def read_answer(answer: Answer, model: type[M]) -> M:
    """The model of a good answer. Raises the CliError of a bad one, or Unreachable."""
    from pydantic import ValidationError

    raise_for_status(answer)
    try:
        # Without building dictionaries first; what does not match is looked at more closely.
        return model.model_validate_json(answer.body, extra="ignore")
    except ValidationError:
        document = read_json(answer)
    try:
        return read_model(model, document, answer.note)
    except Unreadable as error:
        why = f"its response to {answer.request} is not a valid {model.__name__}: {error}"
        if not answer.request.changes:
            raise not_a_node(answer, why) from None
        raise ServerFailed(
            f"{answer.endpoint} accepted {answer.request}, but its response cannot be read",
            why,
            hints=["check the result before repeating it:  skulkctl status"],
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

    for _ in range(_MOST_ROUNDS):
        try:
            return check(document)
        except ValidationError as error:
            document = _without_bad_parts(document, error, note)
    raise Unreadable("too much of it does not match")


def _without_bad_parts(document: object, error: ValidationError, note: Note) -> object:
    """A copy without what the errors are about; the caller's document stays whole."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    places: dict[Place, str] = {}
    for problem in problems:
        place = list(problem["loc"])
        if problem["type"] == "missing":
            # What lacks a required key is not usable as a whole.
            place = place[:-1]
        found = _existing(document, place)
        if not found:
            raise Unreadable(f"{'.'.join(map(str, problem['loc'])) or 'it'}: {problem['msg']}")
        places.setdefault(found, problem["msg"])
    for place_found, why in places.items():
        note(f"left out {'.'.join(map(str, place_found))}: {why}")
    return _without(document, list(places))


def _existing(document: object, place: Sequence[int | str]) -> Place:
    """The part of a location that exists in the document; pydantic also names union variants."""
    found: list[int | str] = []
    for key in place:
        inside = _child(document, key)
        if inside is not _NOTHING:
            document = inside
            found.append(key)
    return tuple(found)


def _child(document: object, key: int | str) -> object:
    if isinstance(document, Mapping):
        return document.get(key, _NOTHING)
    if isinstance(document, list) and isinstance(key, int) and key < len(document):
        return document[key]
    return _NOTHING


def _without(document: object, places: Sequence[Place]) -> object:
    below: dict[int | str, list[Place]] = {}
    for key, *rest in places:
        below.setdefault(key, []).append(tuple(rest))
    gone = {key for key, rests in below.items() if () in rests}
    if isinstance(document, Mapping):
        kept = {key: value for key, value in document.items() if key not in gone}
        return {key: _within(value, below.get(key)) for key, value in kept.items()}
    if isinstance(document, list):
        items = [(key, value) for key, value in enumerate(document) if key not in gone]
        return [_within(value, below.get(key)) for key, value in items]
    return document


def _within(value: object, places: Sequence[Place] | None) -> object:
    return value if places is None else _without(value, places)

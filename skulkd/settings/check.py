"""Plain data to a checked `SkulkConfig`, or to problems an operator can act on.

Turns the validator's findings into our own words. Must not read files or the environment.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from skulkd.settings.document import Document, ValuePath
from skulkd.settings.problems import Problem, SettingsError, nearest, shown
from skulkd.settings.schema import Key, find, join_key, suggest
from skulkd.wire.config import SkulkConfig

_USER_INFO = re.compile(r"://[^/\s]*@")
_SECRET_WORD = re.compile(r"secret|token|passw|credential|key$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Written:
    """How an operator wrote a value down: in which source, on which line, as which text."""

    source: str | None = None
    line: int | None = None
    text: str | None = None


Locate = Callable[[ValuePath], Written]


def check_raw(
    raw: object, locate: Locate = lambda _: Written(), *, whole: bool = True
) -> SkulkConfig:
    """Check plain data against the schema. Raises SettingsError with every problem in it.

    Without `whole` it may lack keys that other sources give.
    """
    if not isinstance(raw, Mapping):
        raise SettingsError.single("must be a mapping of keys to values")
    try:
        config = SkulkConfig.model_validate(dict(raw))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        problems = [_problem(raw, details, locate) for details in found]
        raise SettingsError(sorted(problems, key=lambda one: one.line or 0)) from None
    if whole and (missing := _missing_tls_file(config)) is not None:
        key, why = missing
        written = locate(("api", "tls", key))
        problem = Problem(why, key=f"api.tls.{key}", source=written.source, line=written.line)
        raise SettingsError([problem])
    return config


def _missing_tls_file(config: SkulkConfig) -> tuple[str, str] | None:
    """The key of `api.tls` that the others need, and why."""
    tls = config.api.tls
    if tls is None or not tls.enabled:
        return None
    if tls.certificate is not None and tls.key is None:
        return "key", "this key is required, because api.tls.certificate is set"
    if tls.certificate is None and tls.key is not None:
        return "certificate", "this key is required, because api.tls.key is set"
    if tls.certificate is None and config.cluster.tls is None:
        return "certificate", "this key is required, because there is no cluster.tls"
    return None


def in_document(document: Document, source: str) -> Locate:
    """Locate values in a parsed file."""

    def locate(path: ValuePath) -> Written:
        place = document.place(path)
        text = None if place is None else place.text
        return Written(source, document.nearest_line(path), text)

    return locate


def _problem(raw: Mapping[str, Any], details: Any, locate: Locate) -> Problem:
    path: ValuePath = tuple(part for part in details["loc"] if part != "[key]")
    written = locate(path)
    message, suggestion = _words(path, details, _value_at(raw, path))
    return Problem(
        message,
        key=join_key(path) or None,
        value=_shown_value(raw, path, details["type"], written, suggestion),
        source=written.source,
        line=written.line,
        suggestion=suggestion,
    )


def _words(path: ValuePath, details: Any, value: object) -> tuple[str, str | None]:
    """What to say about one finding, and what the operator may have meant."""
    kind: str = details["type"]
    if kind == "extra_forbidden":
        return "unknown key", suggest(tuple(str(part) for part in path))
    if kind == "literal_error":
        return _choice_words(path, value)
    words = _WORDS.get(kind)
    return words(details.get("ctx", {}), value) if words else str(details["msg"]), None


def _choice_words(path: ValuePath, value: object) -> tuple[str, str | None]:
    key = find(tuple(str(part) for part in path))
    choices = key.choices if isinstance(key, Key) else ()
    near = nearest(value, choices) if isinstance(value, str) else None
    return f"must be one of {', '.join(choices)}", near


def _always(text: str) -> Callable[[Any, object], str]:
    return lambda _context, _value: text


def _unquoted(wanted: str) -> Callable[[Any, object], str]:
    return lambda _, value: f"{wanted} without quotes" if isinstance(value, str) else wanted


def _text_words(_: Any, value: object) -> str:
    return "must be text" if isinstance(value, list | dict) else "must be text; put it in quotes"


_WORDS: dict[str, Callable[[Any, object], str]] = {
    "missing": _always("this key is required"),
    "value_error": lambda context, _: str(context["error"]),
    "greater_than_equal": lambda context, _: f"must be at least {context['ge']:.0f}",
    "less_than_equal": lambda context, _: f"must be at most {context['le']:.0f}",
    "finite_number": _always("must be a finite number"),
    "model_type": _always("must be a section with keys of its own"),
    "dict_type": _always("must be a section with keys of its own"),
    "list_type": _always("must be a list"),
    "string_type": _text_words,
    "string_unicode": _always("must be valid Unicode text"),
    "int_type": _unquoted("must be a whole number"),
    "float_type": _unquoted("must be a number"),
    "bool_type": _unquoted("must be true or false"),
}


def _shown_value(
    raw: Mapping[str, Any], path: ValuePath, kind: str, written: Written, suggestion: str | None
) -> str | None:
    if kind == "missing" or _may_be_secret(path, suggestion):
        return None
    value = _value_at(raw, path)
    if isinstance(value, dict | list) and value:
        return None
    # The operator's own spelling says more than the value YAML made of it.
    text = written.text or shown(value)
    return None if _USER_INFO.search(text) else text


def _may_be_secret(path: ValuePath, suggestion: str | None) -> bool:
    """A misspelled secret key still has a secret behind it."""
    key = find(tuple(str(part) for part in path))
    if isinstance(key, Key):
        return key.secret
    words = [str(part) for part in path] + ([suggestion] if suggestion else [])
    return any(_SECRET_WORD.search(word) for word in words)


def _value_at(raw: Any, path: ValuePath) -> Any:
    here = raw
    for part in path:
        try:
            here = here[part]
        except (KeyError, IndexError, TypeError):
            return None
    return here

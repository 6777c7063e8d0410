"""The help topics, made from the tables that the program itself uses."""

from __future__ import annotations

from collections.abc import Callable

from skulkctl.exits import MEANINGS
from skulkctl.names import MIN_PREFIX

ENVIRONMENT: dict[str, str] = {
    "SKULK_CONTEXT": "context to use, as --context",
    "SKULK_ENDPOINT": "address of a daemon, as --endpoint; wins over SKULK_CONTEXT",
    "SKULK_TOKEN": "token or cluster secret for the daemon; wins over a context's token file",
    "SKULK_CA": "PEM file of the authority that an https endpoint must show; wins over a context's",
    "SKULK_HOME": "holds all files of the toolkit instead of the usual directories",
    "NO_COLOR": "any value: no colour",
    "TERM": "dumb: no colour",
}

FORMATS: dict[str, str] = {
    "table": "columns for people; a terminal gets those that fit, a pipe gets all, uncut",
    "wide": "all columns; one field a line where the terminal is too narrow",
    "json": 'one document {"apiVersion", "kind", "items"}; sizes in bytes, times in UTC',
    "yaml": "the same document as YAML",
    "name": "names only, one a line; -q is the same",
    "jsonl": "one JSON object a line, without the envelope",
}


def exit_codes() -> str:
    rows = [(str(int(code)), meaning) for code, meaning in MEANINGS.items()]
    return f"Exit codes of skulkctl:\n\n{_rows(rows)}"


def environment() -> str:
    order = (
        "Which daemon is asked: --endpoint, --context, SKULK_ENDPOINT, SKULK_CONTEXT, the\n"
        "current context, then http://127.0.0.1:52415, in this order.\n"
    )
    return f"Environment of skulkctl:\n\n{_rows(list(ENVIRONMENT.items()))}\n{order}"


def output() -> str:
    more = (
        "Tables: --columns A,B chooses, --sort COLUMN orders, --no-headers drops the header.\n"
        "On a terminal empty columns are left out, ids are shortened to what is unique, text\n"
        "wraps at spaces, and the least important columns go first.\n"
        "stdout is data; notes, hints, warnings and questions go to stderr.\n"
        "JSON only grows: keys are added, never renamed. The daemon's own answer is\n"
        "printed by:  skulkctl api GET /state\n"
    )
    return f"Output formats (-o FORMAT):\n\n{_rows(list(FORMATS.items()))}\n{more}"


def names() -> str:
    return (
        "What may be typed for a node, instance, model, request or trace:\n\n"
        "  its whole id or name; for a model and its instances also the part after the slash\n"
        "  the beginning of an id or name, if only one thing begins so\n\n"
        f"Commands that change or end something take at least {MIN_PREFIX} characters\n"
        "or a whole name, and say what they matched. Letter case does not matter.\n"
    )


TOPICS: dict[str, Callable[[], str]] = {
    "exit-codes": exit_codes,
    "environment": environment,
    "output": output,
    "names": names,
}


def _rows(rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "".join(f"  {name:<{width}}  {text}\n" for name, text in rows)

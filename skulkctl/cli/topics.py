"""The help topics, made from the tables that the program itself uses."""

from __future__ import annotations

from collections.abc import Callable

from skulkctl.exits import MEANINGS
from skulkctl.names import MIN_PREFIX

ENVIRONMENT: dict[str, str] = {
    "SKULK_CONTEXT": "context to use, like --context",
    "SKULK_ENDPOINT": "address of a daemon, like --endpoint; overrides SKULK_CONTEXT",
    "SKULK_TOKEN": "token or cluster secret for the daemon; overrides the context's token file",
    "SKULK_CA": "PEM file of the only CA to trust for https endpoints; overrides the context's CA",
    "SKULK_HOME": "directory for all files of the toolkit, instead of the default directories",
    "NO_COLOR": "set to any value to disable colour",
    "TERM": "set to dumb to disable colour",
}

FORMATS: dict[str, str] = {
    "table": "aligned columns; a terminal gets those that fit, a pipe gets all of them untruncated",
    "wide": "all columns; one field per line if the terminal is too narrow",
    "json": 'one document {"apiVersion", "kind", "items"}; sizes in bytes, times in UTC',
    "yaml": "the same document as YAML",
    "name": "names only, one per line; same as -q",
    "jsonl": "one JSON object per line, without the envelope",
}


def exit_codes() -> str:
    rows = [(str(int(code)), meaning) for code, meaning in MEANINGS.items()]
    return f"Exit codes of skulkctl:\n\n{_rows(rows)}"


def environment() -> str:
    order = (
        "The daemon is taken from the first of these that is set: --endpoint, --context,\n"
        "SKULK_ENDPOINT, SKULK_CONTEXT, the current context, the running daemon of this user on\n"
        "this machine (on any port). The default is http://127.0.0.1:52415.\n"
    )
    return f"Environment variables of skulkctl:\n\n{_rows(list(ENVIRONMENT.items()))}\n{order}"


def output() -> str:
    more = (
        "Tables: --columns A,B selects columns, --sort COLUMN sorts the rows, --no-headers\n"
        "omits the header. On a terminal, empty columns are hidden, ids are shortened to a\n"
        "unique prefix, text wraps at spaces, and the least important columns are dropped\n"
        "when the terminal is too narrow.\n"
        "Data goes to stdout; notes, hints, warnings and prompts go to stderr.\n"
        "JSON keys are only added, never renamed. To print the daemon's own response, run:\n"
        "skulkctl api GET /state\n"
    )
    return f"Output formats (-o FORMAT):\n\n{_rows(list(FORMATS.items()))}\n{more}"


def names() -> str:
    return (
        "A node, instance, model, request or trace can be given as:\n\n"
        "  its full id or name; for a model and its instances also the part after the slash\n"
        "  a unique prefix of its id or name\n\n"
        f"Commands that change something require at least {MIN_PREFIX} characters or a full\n"
        "name, and print what they matched. Names are not case-sensitive.\n"
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

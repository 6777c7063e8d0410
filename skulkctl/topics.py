"""The help topics, made from the tables that the program itself uses."""

from __future__ import annotations

from collections.abc import Callable

from skulkctl.exits import MEANINGS

ENVIRONMENT: dict[str, str] = {
    "SKULK_CONTEXT": "context to use, as --context",
    "SKULK_ENDPOINT": "address of a daemon, as --endpoint; wins over SKULK_CONTEXT",
    "SKULK_TOKEN": "the cluster secret to show to the daemon; wins over a context's token file",
    "SKULK_HOME": "holds all files of the toolkit instead of the usual directories",
    "NO_COLOR": "any value: no colour",
    "TERM": "dumb: no colour",
}

FORMATS: dict[str, str] = {
    "table": "columns for people; never cut off, - for what is empty",
    "wide": "table with more columns",
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
        "stdout is data; notes, hints, warnings and questions go to stderr.\n"
        "JSON only grows: keys are added, never renamed. The daemon's own answer is\n"
        "printed by:  skulkctl api GET /state\n"
    )
    return f"Output formats (-o FORMAT):\n\n{_rows(list(FORMATS.items()))}\n{more}"


TOPICS: dict[str, Callable[[], str]] = {
    "exit-codes": exit_codes,
    "environment": environment,
    "output": output,
}


def _rows(rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "".join(f"  {name:<{width}}  {text}\n" for name, text in rows)

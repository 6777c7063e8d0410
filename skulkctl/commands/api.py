"""`skulkctl api`: one raw request."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from skulkctl.command import new_app
from skulkctl.errors import CliError, NotFound, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import CONFIRM, FORMAT, REACH, verb
from skulkctl.output import to_json, to_yaml
from skulkctl.stdout import write

app = new_app()

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

EXAMPLES = """
  skulkctl api GET /state
  skulkctl api GET /metrics
  skulkctl api PUT /v1/tracing -d '{"enabled": true}'
  skulkctl api PUT /config -d @config.json
"""


@verb(app, "api", REACH, FORMAT, CONFIRM, examples=EXAMPLES)
def api(
    call: Invocation,
    method: Annotated[str, typer.Argument(metavar="METHOD", help="GET, POST, PUT, DELETE ...")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="Begins with /, may have a query.")],
    data: Annotated[
        str | None,
        typer.Option(
            "-d",
            "--data",
            metavar="JSON",
            help="Body: JSON, @FILE, or - for stdin.",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Send one request to the daemon and print its answer as it came.

    The body of an error is printed too; the exit code then says what kind of error it was.
    With -o json or yaml the answer is formatted. In a protected context every method but GET
    must be confirmed.
    """
    from skulkctl.confirm import protect
    from skulkctl.daemon.answers import error_of, is_missing_route

    verb_name = method.upper()
    if verb_name not in METHODS:
        raise UsageMistake(f"no HTTP method named {method}", f"methods: {', '.join(METHODS)}")
    target_path = _path(path)
    body = None if data is None else _body(data)
    if verb_name not in ("GET", "HEAD", "OPTIONS"):
        if call.options.get("dry_run"):
            size = 0 if body is None else len(body)
            call.talk.note(f"would send {verb_name} {target_path} with {size} bytes")
            return ExitCode.DONE
        protect(call, f"send {verb_name} {target_path}")
    answer = call.client.send(verb_name, target_path, body=body)
    _print(call, answer.body)
    for name, value in answer.headers.items():
        call.talk.detail(f"{name}: {value}")
    if is_missing_route(answer):
        # The path was typed by the user: it is not found, rather than something refused.
        raise NotFound(f"{answer.endpoint} has no {answer.request}", details=answer.details())
    if not answer.ok:
        raise error_of(answer)
    return ExitCode.DONE


def _path(typed: str) -> str:
    if not typed.startswith("/"):
        raise UsageMistake(
            f"the path {typed!r} does not begin with /",
            hints=["skulkctl api GET /state", "another daemon:  --endpoint HOST:PORT"],
        )
    return quote(typed, safe="/?&=%:@!$'()*+,;~#[]")


def _body(data: str) -> bytes:
    if data == "-":
        return sys.stdin.buffer.read()
    if not data.startswith("@"):
        return data.encode()
    file = Path(data[1:]).expanduser()
    try:
        return file.read_bytes()
    except OSError as error:
        raise CliError(f"cannot read {file}", str(error.strerror or error)) from error


def _print(call: Invocation, body: bytes) -> None:
    """The body as it is, or formatted when a format was asked for and it is JSON."""
    import json

    text = body.decode("utf-8", "replace")
    wanted = call.options.get("output")
    if wanted in ("json", "yaml", "jsonl"):
        try:
            document = json.loads(body)
        except ValueError:
            call.talk.warning("the answer is not JSON; it is printed as it came")
        else:
            indent = None if wanted == "jsonl" else 2
            text = to_yaml(document) if wanted == "yaml" else to_json(document, indent)
    write(text)
    if text and not text.endswith("\n") and sys.stdout.isatty():
        write("\n")

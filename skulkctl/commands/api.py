"""`skulkctl api`: one raw request."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from skulkctl.cli import Confirmation, Invocation, Output, Reach, new_app, verb
from skulkctl.errors import CliError, NotFound, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.output.formats import to_json, to_yaml
from skulkctl.output.stdout import write

app = new_app()


class Method(StrEnum):
    """What may be sent."""

    GET = "GET"
    HEAD = "HEAD"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"
    OPTIONS = "OPTIONS"


EXAMPLES = """
  skulkctl api GET /state
  skulkctl api GET /metrics
  skulkctl api PUT /v1/tracing -d '{"enabled": true}'
  skulkctl api PUT /config -d @config.json
"""


@verb(app, "api", Reach, Output, Confirmation, examples=EXAMPLES)
def api(
    call: Invocation,
    method: Annotated[
        Method,
        typer.Argument(
            metavar="METHOD", case_sensitive=False, help="HTTP method: GET, POST, PUT, DELETE ..."
        ),
    ],
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="Path of the request, starting with /; may include a query."
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            "-d",
            "--data",
            metavar="JSON",
            help="Request body: JSON, @FILE, or - for stdin.",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Send one request to the daemon and print the response unchanged.

    The body of an error response is printed too, and the exit code gives the kind of error.
    With -o json or yaml the response is formatted. In a protected context every method except
    GET must be confirmed.
    """
    from skulkctl.cli.confirm import protect
    from skulkctl.daemon.answers import error_of, is_missing_route

    target_path = _path(path)
    body = None if data is None else _body(data)
    if method not in ("GET", "HEAD", "OPTIONS"):
        if call.dry_run:
            size = 0 if body is None else len(body)
            call.messages.note(f"would send {method} {target_path} with {size} bytes")
            return ExitCode.DONE
        protect(call, f"send {method} {target_path}")
    answer = call.daemon.send(method, target_path, body)
    _print(call, answer.body)
    for name, value in answer.headers.items():
        call.messages.detail(f"{name}: {value}")
    if is_missing_route(answer):
        # The path was typed by the user: it is not found, rather than something refused.
        raise NotFound(f"{answer.endpoint} has no {answer.request}", details=answer.details())
    if not answer.ok:
        raise error_of(answer)
    return ExitCode.DONE


def _path(typed: str) -> str:
    if not typed.startswith("/"):
        raise UsageMistake(
            f"the path {typed!r} does not start with /",
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
    wanted = call.options(Output)
    if wanted.is_document:
        try:
            document = json.loads(body)
        except ValueError:
            call.messages.warning("the response is not JSON; it is printed unchanged")
        else:
            indent = None if wanted.format == "jsonl" else 2
            text = to_yaml(document) if wanted.format == "yaml" else to_json(document, indent)
    write(text)
    if text and not text.endswith("\n") and sys.stdout.isatty():
        write("\n")

"""`skulkctl context`: named clusters in the context file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Invocation, Output, Table, new_app, values, verb
from skulkctl.errors import Refused, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.output.tables import EMPTY, Column, Resource, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skulkctl.contexts import Context

app = new_app("Manage named clusters and select one.")

CONTEXTS = Resource(
    kind="ContextList",
    name_path="name",
    empty_hint="no contexts yet:  skulkctl context add NAME HOST[:PORT]",
    columns=(
        Column("current", "current", "yes for the context used by default."),
        Column("name", "name", "Name of the context."),
        Column("endpoints", "endpoints", "Addresses, in the order they are tried."),
        Column(
            "protected",
            "protected",
            "Whether every change must be confirmed by typing the context's name.",
            spare=1,
        ),
        Column(
            "token-file", "tokenFile", "File that contains a token or the cluster secret.", spare=2
        ),
        Column("ca", "ca", "PEM file of the only CA to trust for its endpoints.", spare=3),
    ),
)

TokenFile = Annotated[
    str | None,
    typer.Option(
        "--token-file", metavar="FILE", help="File that contains a token or the cluster secret."
    ),
]
CaFile = Annotated[
    str | None,
    typer.Option(
        "--ca", metavar="FILE", help="PEM file of the only CA to trust for its endpoints (https)."
    ),
]
NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", autocompletion=values.contexts, help="Name of the context."),
]


@verb(
    app,
    "list",
    Output,
    Table,
    examples="""
  skulkctl context list
  skulkctl context ls -o json
""",
)
def list_contexts(call: Invocation) -> int:
    """List the contexts of the context file."""
    from skulkctl.contexts import read_contexts

    file = read_contexts(call.paths.contexts_file)
    items = [
        {
            "name": context.name,
            "current": context.name == file.current,
            "endpoints": list(context.endpoints),
            "protected": context.protected,
            "tokenFile": context.token_file,
            "ca": context.ca,
        }
        for context in file.contexts.values()
    ]
    call.show_rows(CONTEXTS, items)
    call.messages.detail(f"context file: {call.paths.contexts_file}")
    return ExitCode.DONE


@verb(app, "use", examples="  skulkctl context use lab")
def use(call: Invocation, name: NameArgument) -> int:
    """Make this context the default."""
    from skulkctl.contexts import read_contexts, write_contexts

    path = call.paths.contexts_file
    write_contexts(path, read_contexts(path).used(name))
    call.messages.note(f"using {name}")
    return ExitCode.DONE


@verb(
    app,
    "add",
    examples="""
  skulkctl context add lab kite1 kite2 --use
  skulkctl context add prod https://kite9:52415 --ca ~/ca.pem --token-file ~/prod.token
""",
)
def add(
    call: Invocation,
    name: NameArgument,
    endpoints: Annotated[
        list[str],
        typer.Argument(
            metavar="ENDPOINT",
            help="URL or HOST[:PORT] (https with --ca, otherwise http); tried in the given order.",
        ),
    ],
    token_file: TokenFile = None,
    ca: CaFile = None,
    protected: Annotated[
        bool, typer.Option("--protected", help="Require confirmation by name for every change.")
    ] = False,
    use_it: Annotated[bool, typer.Option("--use", help="Make it the default context.")] = False,
) -> int:
    """Add a context: a name for one or more endpoints of the same cluster."""
    from skulkctl.contexts import Context, check_name, read_contexts, write_contexts

    path = call.paths.contexts_file
    file = read_contexts(path)
    if check_name(name) in file.contexts:
        raise Refused(
            f"a context named {name} already exists",
            hints=[f"change it:  skulkctl context set {name} ENDPOINT..."],
        )
    urls = _urls(endpoints, secure=ca is not None)
    context = Context(name, urls, _token_file(call, token_file), protected, _ca_file(call, ca))
    _warn_of_plain_http(call, context)
    write_contexts(path, file.added(context, use_it))
    call.messages.note(f"added {name}: {', '.join(context.endpoints)}")
    if not use_it:
        call.messages.hint(f"skulkctl context use {name}")
    return ExitCode.DONE


@verb(
    app,
    "set",
    examples="""
  skulkctl context set lab kite1 kite2 kite3        replace the addresses
  skulkctl context set prod --token-file ~/prod.token --protected
  skulkctl context set prod --no-token-file
""",
)
def set_(
    call: Invocation,
    name: NameArgument,
    endpoints: Annotated[
        list[str] | None,
        typer.Argument(metavar="ENDPOINT", help="New addresses; they replace the old ones."),
    ] = None,
    token_file: TokenFile = None,
    no_token_file: Annotated[
        bool, typer.Option("--no-token-file", help="Stop using a token file.")
    ] = False,
    ca: CaFile = None,
    no_ca: Annotated[bool, typer.Option("--no-ca", help="Trust the system's CAs again.")] = False,
    protected: Annotated[
        bool | None,
        typer.Option(
            "--protected/--no-protected",
            help="Require confirmation by name for every change, or not.",
        ),
    ] = None,
) -> int:
    """Change a context. Settings that are not given stay unchanged."""
    from skulkctl.contexts import read_contexts, write_contexts

    if token_file is not None and no_token_file:
        raise UsageMistake("--token-file and --no-token-file cannot be combined")
    if ca is not None and no_ca:
        raise UsageMistake("--ca and --no-ca cannot be combined")
    path = call.paths.contexts_file
    file = read_contexts(path)
    old = file.get(name)
    new = old
    if endpoints:
        secure = not no_ca and (ca or old.ca) is not None
        new = new._replace(endpoints=_urls(endpoints, secure=secure))
    if token_file is not None or no_token_file:
        new = new._replace(token_file=_token_file(call, token_file))
    if ca is not None or no_ca:
        new = new._replace(ca=_ca_file(call, ca))
    if protected is not None:
        new = new._replace(protected=protected)
    given = (endpoints, token_file is not None, no_token_file, ca is not None, no_ca)
    if not any(given) and protected is None:
        raise UsageMistake(
            f"context set {name}: nothing to change",
            hints=["give ENDPOINT..., --[no-]token-file, --[no-]ca or --[no-]protected"],
        )
    _warn_of_plain_http(call, new)
    write_contexts(path, file.added(new, use=False))
    for line in _differences(old, new) or ["nothing changed"]:
        call.messages.note(f"{name}: {line}")
    return ExitCode.DONE


def _differences(old: Context, new: Context) -> list[str]:
    fields = (
        ("endpoints", ", ".join(old.endpoints), ", ".join(new.endpoints)),
        ("token file", old.token_file or EMPTY, new.token_file or EMPTY),
        ("ca", old.ca or EMPTY, new.ca or EMPTY),
        ("protected", plain(old.protected), plain(new.protected)),
    )
    return [f"{field}: {before} -> {after}" for field, before, after in fields if before != after]


def _urls(endpoints: Sequence[str], *, secure: bool) -> tuple[str, ...]:
    from skulkctl.endpoints import parse_endpoint

    try:
        return tuple(dict.fromkeys(parse_endpoint(typed, secure=secure) for typed in endpoints))
    except ValueError as error:
        raise UsageMistake(str(error)) from None


def _warn_of_plain_http(call: Invocation, context: Context) -> None:
    plain_ones = [url for url in context.endpoints if url.startswith("http://")]
    if context.ca is not None and plain_ones:
        call.messages.warning(f"--ca has no effect on plain HTTP: {', '.join(plain_ones)}")


def _ca_file(call: Invocation, typed: str | None) -> str | None:
    """The path to store, after the file has been checked."""
    from skulkctl.tokens.files import stored_path
    from skulkd.settings.certificates import CertificateError, read_certificates
    from skulkd.settings.paths import expand_home

    if typed is None:
        return None
    path = stored_path(typed)
    try:
        read_certificates(expand_home(path, call.environ))
    except CertificateError as error:
        raise Refused(f"cannot use --ca {error.file}", error.why) from None
    return path


def _token_file(call: Invocation, typed: str | None) -> str | None:
    """The path to store, after the file has been checked."""
    from skulkctl.tokens.files import check_token_file, stored_path

    if typed is None:
        return None
    path = stored_path(typed)
    warning = check_token_file(path, call.environ)
    if warning:
        call.messages.warning(warning)
    return path


@verb(app, "rm", examples="  skulkctl context rm lab")
def rm(call: Invocation, name: NameArgument) -> int:
    """Remove a context from the context file; the cluster is not touched."""
    from skulkctl.contexts import read_contexts, write_contexts

    path = call.paths.contexts_file
    file = read_contexts(path)
    write_contexts(path, file.removed(name))
    call.messages.note(f"removed {name}")
    if file.current == name:
        call.messages.note("no context is selected now; commands use the local daemon")
    return ExitCode.DONE

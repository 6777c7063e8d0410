"""`skulkctl config`: show, change and check the configuration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Confirmation, Invocation, Output, Reach, Table, new_app, values, verb
from skulkctl.cli.options import Format
from skulkctl.errors import CliError, NotFound, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write
from skulkctl.output.tables import Column, Resource

if TYPE_CHECKING:
    from skulkctl.settings.change import Change

app = new_app("Show, change or check the configuration.")

PATHS = Resource(
    kind="PathList",
    name_path="path",
    columns=(
        Column("file", "file", "Name of the file."),
        Column("path", "path", "Path of the file."),
        Column("exists", "exists", "Whether the file exists."),
    ),
)


@verb(
    app,
    "show",
    Reach,
    Output,
    Table,
    examples="""
  skulkctl config show
  skulkctl config show --origin
  skulkctl config show -o json | jq '.items[] | select(.origin != "default")'
""",
)
def show(
    call: Invocation,
    origin: Annotated[
        bool, typer.Option("--origin", help="Also show where each value comes from.")
    ] = False,
) -> int:
    """Show the configuration in force on the node that answers. Secrets are never shown.

    If the file was changed after the daemon started, CONFIGURED shows the value in the file,
    marked `restart needed`. The same applies to tracing after `skulkctl trace on` or `off`.
    """
    from skulkctl.settings.change import secret_names
    from skulkctl.settings.rows import SETTINGS, answering_node, pending_lines, setting_items

    answer = call.daemon.config()
    if answer.settings is None:
        call.messages.note(
            "this server does not report where values come from; only its file is shown"
        )
    items = setting_items(answer, secret_names())
    pending = [item for item in items if item["pending"] is not None]
    # A terminal has no room for two values in each row; a pipe has all in one table.
    apart = call.style.room is not None and call.format == "table" and not call.style.columns
    names = ["key", "value", *(["configured", "note"] if pending and not apart else [])]
    columns = None if call.format == "wide" else ",".join([*names, *(["origin"] if origin else [])])
    call.show_rows(SETTINGS, items, columns=columns)
    if pending and apart:
        write("\n" + pending_lines(pending, call.style.room))
    if any(item["restartNeeded"] for item in pending):
        call.messages.hint(
            f"apply the configured values:  skulkctl restart {answering_node(answer)}"
        )
    return ExitCode.DONE


@verb(
    app,
    "path",
    Output,
    examples="""
  skulkctl config path
  skulkctl config path secret
  scp "$(skulkctl config path secret)" kite2:.config/skulk/cluster.secret
""",
)
def path(
    call: Invocation,
    what: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="Print only the path of this file.")
    ] = None,
) -> int:
    """Show the paths of this machine's files: settings, secret, contexts, models and log.

    The paths are those of the current user and environment, whether or not the files exist. A
    daemon that runs as another user or with another SKULK_HOME uses other paths.
    """
    places = {
        "config": call.paths.config_file,
        "secret": call.paths.secret_file,
        "contexts": call.paths.contexts_file,
        "tls": call.paths.tls,
        "models": call.paths.models,
        "staging": call.paths.staging,
        "log": call.paths.log_file,
    }
    if what is not None:
        if what not in places:
            raise UsageMistake(f"no file called {what}", f"known: {', '.join(places)}")
        write(f"{places[what]}\n")
        return ExitCode.DONE
    items = [
        {"file": name, "path": str(place), "exists": place.exists()}
        for name, place in places.items()
    ]
    call.show_rows(PATHS, items)
    return ExitCode.DONE


@verb(
    app,
    "set",
    Reach,
    Output,
    Confirmation,
    examples="""
  skulkctl config set model_store.staging.staging_keep_recent_gb 10
  skulkctl config set inference.kv_cache_backend turboquant --dry-run
  skulkctl config set logging.ingest_url --unset
  skulkctl config set -- tracing.retention_days -1
  skulkctl config set hf_token @token.txt     read a secret from a file, or - for stdin
""",
)
def set_(
    call: Invocation,
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY", autocompletion=values.config_keys, help="Dotted key in skulk.yaml."
        ),
    ],
    value: Annotated[
        str | None,
        typer.Argument(
            metavar="VALUE",
            autocompletion=values.config_values,
            help="New value; separate list items with commas.",
            show_default=False,
        ),
    ] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Remove the key from the file.")] = False,
) -> int:
    """Change one value of the configuration.

    Reads, changes and writes back the whole configuration, because a stock node drops every
    section missing from the request. Shows the old and the new value, and whether a restart is
    needed.
    """
    from skulkctl.settings.change import is_secret, plan_set, plan_unset
    from skulkctl.settings.rows import answering_node, decided_elsewhere

    if unset == (value is not None):
        raise UsageMistake(f"config set {key}: give either a VALUE or --unset")
    typed = _secret_text(key, value) if value is not None and is_secret(key) else value
    answer = call.daemon.config()
    old = answer.config
    change = plan_unset(old, key) if typed is None else plan_set(old, key, typed)
    decider = decided_elsewhere(answer, key)
    if decider:
        call.messages.warning(
            f"{decider} overrides {key} on this node: the new value has no effect"
        )
    if call.dry_run:
        _report(call, change, restart=None, dry_run=True)
    else:
        _carry_out(call, change, None if decider else answering_node(answer))
    return ExitCode.DONE


@verb(
    app,
    "validate",
    Output,
    Table,
    examples="""
  skulkctl config validate
  skulkctl config validate ./skulk.yaml
  skulkctl config validate new.yaml && cp new.yaml ~/.config/skulk/skulk.yaml
""",
)
def validate(
    call: Invocation,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE", help="File to check (default: the file that skulkd would read)."
        ),
    ] = None,
) -> int:
    """Check a configuration file without a daemon. Prints one row per problem and exits 7."""
    from skulkctl.settings.rows import PROBLEMS, ProblemItem, problem_item
    from skulkd.settings.load import check_config_text, find_config_file
    from skulkd.settings.problems import SettingsError

    problems: list[ProblemItem] = []
    path: Path | None = None
    try:
        if file is None:
            path, exists = find_config_file(call.paths, call.environ)
        else:
            path, exists = Path(file).expanduser(), True
        if exists:
            check_config_text(path.read_bytes(), path)
            call.messages.note(f"{path} is valid")
        else:
            call.messages.note(f"there is no configuration file at {path}; defaults are in use")
    except SettingsError as error:
        problems = [problem_item(problem) for problem in error.problems]
    except OSError as error:
        kind = NotFound if isinstance(error, FileNotFoundError) else CliError
        raise kind(f"cannot read {path}", str(error.strerror or error)) from error
    if problems or call.format not in (Format.TABLE, Format.WIDE):
        call.show_rows(PROBLEMS, problems)
    return ExitCode.PROBLEM if problems else ExitCode.DONE


def _secret_text(key: str, value: str) -> str:
    """A secret from a file or stdin; the command line is visible to every user of the machine."""
    if value == "-":
        return sys.stdin.readline().strip()
    if not value.startswith("@"):
        raise UsageMistake(
            f"{key} is a secret and must not be given on the command line",
            hints=[f"skulkctl config set {key} @FILE", f"skulkctl config set {key} -   (stdin)"],
        )
    path = Path(value[1:]).expanduser()
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"cannot read {path}", str(error)) from error


def _carry_out(call: Invocation, change: Change, node: str | None) -> None:
    """`node` is the one to restart, None when the change has no effect there."""
    from skulkctl.cli.confirm import protect

    protect(call, f"set {change.line()}")
    answer = call.daemon.put_config(change.body)
    _report(call, change, answer.requires_restart, dry_run=False)
    call.messages.note(answer.message or "accepted")
    if answer.requires_restart and node:
        call.messages.hint(f"to apply it, run:  skulkctl restart {node}")


def _report(call: Invocation, change: Change, restart: bool | None, dry_run: bool) -> None:
    document = change.document() | {"requiresRestart": restart, "dryRun": dry_run}
    line = f"{change.line()}{'  (not written)' if dry_run else ''}\n"
    write(call.style.single("ConfigChange", document, change.key, lambda _: line))

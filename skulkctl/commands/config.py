"""`skulkctl config`: show, change and check the configuration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import CliError, NotFound, ServerFailed, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import CONFIRM, FORMAT, REACH, TABLE, verb
from skulkctl.stdout import write
from skulkctl.tables import Column, Resource

if TYPE_CHECKING:
    from skulkctl.change import Change
    from skulkd.settings.problems import Problem

app = new_app("Show, change or check the configuration.")

PROBLEMS = Resource(
    kind="ConfigProblemList",
    name_path="key",
    columns=(
        Column("file", "file", "File that was checked."),
        Column("line", "line", "Line of the problem.", right=True),
        Column("key", "key", "Dotted key."),
        Column("problem", "message", "What is wrong."),
        Column("value", "value", "The value that is written there."),
        Column("suggestion", "suggestion", "What may have been meant."),
    ),
)

PATHS = Resource(
    kind="PathList",
    name_path="path",
    columns=(
        Column("file", "file", "What it is."),
        Column("path", "path", "Where it is."),
        Column("exists", "exists", "Whether it is there."),
    ),
)


@verb(
    app,
    "show",
    REACH,
    FORMAT,
    TABLE,
    examples="""
  skulkctl config show
  skulkctl config show --origin
  skulkctl config show -o json | jq '.items[] | select(.origin != "default")'
""",
)
def show(
    call: Invocation,
    origin: Annotated[
        bool, typer.Option("--origin", help="Also say where each value comes from.")
    ] = False,
) -> int:
    """Show the configuration in force on the node that answers. Secrets are never shown.

    Where the file has been changed since the daemon started, CONFIGURED shows what the file
    says, marked `restart needed`; also where `skulkctl trace` has switched tracing.
    """
    from skulkctl.change import secret_names
    from skulkctl.views.config import (
        SETTINGS,
        answering_node,
        has_origins,
        pending_lines,
        setting_items,
    )

    answer = _read_config(call)
    if not has_origins(answer):
        call.talk.note("this server does not say where values come from; only its file is shown")
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
        call.talk.hint(f"use what is configured:  skulkctl restart {answering_node(answer)}")
    return ExitCode.DONE


@verb(
    app,
    "path",
    FORMAT,
    examples="""
  skulkctl config path
  skulkctl config path secret
  scp "$(skulkctl config path secret)" kite2:.config/skulk/cluster.secret
""",
)
def path(
    call: Invocation,
    what: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="Only this one, as a bare path.")
    ] = None,
) -> int:
    """Show where the files of this machine are: settings, secret, contexts, models and log.

    It says where they are or would be, for the user and the environment of this command; a
    daemon that runs as another user or with another SKULK_HOME has its own.
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
    REACH,
    FORMAT,
    CONFIRM,
    examples="""
  skulkctl config set model_store.staging.staging_keep_recent_gb 10
  skulkctl config set inference.kv_cache_backend turboquant --dry-run
  skulkctl config set logging.ingest_url --unset
  skulkctl config set -- tracing.retention_days -1
  skulkctl config set hf_token @token.txt     a secret comes from a file, or - for stdin
""",
)
def set_(
    call: Invocation,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Dotted key, as in skulk.yaml.")],
    value: Annotated[
        str | None,
        typer.Argument(metavar="VALUE", help="New value; a list with commas.", show_default=False),
    ] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Remove the key from the file.")] = False,
) -> int:
    """Change one value of the configuration.

    The whole configuration is read, changed and written back, because a stock node drops every
    section it is not given. Shows the old and the new value and whether a restart is needed.
    """
    from skulkctl.change import is_secret, plan_set, plan_unset
    from skulkctl.views.config import answering_node, decided_elsewhere
    from skulkctl.views.read import mapping

    if unset == (value is not None):
        raise UsageMistake(f"config set {key}: give either a VALUE or --unset")
    typed = _secret_text(key, value) if value is not None and is_secret(key) else value
    answer = _read_config(call)
    config = mapping(answer, "config")
    change = plan_unset(config, key) if typed is None else plan_set(config, key, typed)
    decider = decided_elsewhere(answer, key)
    if decider:
        call.talk.warning(f"{decider} overrides {key} on this node: the new value has no effect")
    if call.options.get("dry_run"):
        _report(call, change, restart=None, dry_run=True)
    else:
        _carry_out(call, change, None if decider else answering_node(answer))
    return ExitCode.DONE


@verb(
    app,
    "validate",
    FORMAT,
    TABLE,
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
            metavar="FILE", help="File to check; without it the one that skulkd would read."
        ),
    ] = None,
) -> int:
    """Check a configuration file without a daemon. Every problem is one row; then exit 7."""
    from skulkd.settings.load import check_config_text, find_config_file
    from skulkd.settings.problems import SettingsError

    problems: list[dict[str, object]] = []
    path: Path | None = None
    try:
        if file is None:
            path, exists = find_config_file(call.paths, call.environ)
        else:
            path, exists = Path(file).expanduser(), True
        if exists:
            check_config_text(path.read_bytes(), path)
            call.talk.note(f"{path} is valid")
        else:
            call.talk.note(f"there is no configuration file at {path}; defaults are in use")
    except SettingsError as error:
        problems = [_problem_item(problem) for problem in error.problems]
    except OSError as error:
        kind = NotFound if isinstance(error, FileNotFoundError) else CliError
        raise kind(f"cannot read {path}", str(error.strerror or error)) from error
    call.show_rows(PROBLEMS, problems)
    return ExitCode.PROBLEM if problems else ExitCode.DONE


def _read_config(call: Invocation) -> object:
    from skulkctl.views.read import mapping

    answer = call.client.get("/config")
    if "config" not in mapping(answer):
        raise ServerFailed(f"{call.client.endpoint} gave no configuration")
    return answer


def _secret_text(key: str, value: str) -> str:
    """A secret from a file or stdin; the command line is visible to every user of the machine."""
    if value == "-":
        return sys.stdin.readline().strip()
    if not value.startswith("@"):
        raise UsageMistake(
            f"{key} is a secret and must not stand on the command line",
            hints=[f"skulkctl config set {key} @FILE", f"skulkctl config set {key} -   (stdin)"],
        )
    path = Path(value[1:]).expanduser()
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"cannot read {path}", str(error)) from error


def _carry_out(call: Invocation, change: Change, node: str | None) -> None:
    """`node` is the one to restart, None when the change has no effect there."""
    from skulkctl.confirm import protect
    from skulkctl.views.read import flag, text

    protect(call, f"set {change.line()}")
    answer = call.client.change("PUT", "/config", {"config": dict(change.body)})
    restart = flag(answer, "requiresRestart")
    _report(call, change, restart, dry_run=False)
    call.talk.note(text(answer, "message") or "accepted")
    if restart and node:
        call.talk.hint(f"it takes effect after a restart:  skulkctl restart {node}")


def _report(call: Invocation, change: Change, restart: bool | None, dry_run: bool) -> None:
    document = change.document() | {"requiresRestart": restart, "dryRun": dry_run}
    line = f"{change.line()}{'  (not written)' if dry_run else ''}\n"
    write(call.style.single("ConfigChange", document, change.key, lambda _: line))


def _problem_item(problem: Problem) -> dict[str, object]:
    return {
        "file": problem.source,
        "line": problem.line,
        "key": problem.key,
        "value": problem.value,
        "message": problem.message,
        "suggestion": problem.suggestion,
    }

"""Command line of the daemon. Imports only Typer until it knows that the rest is installed."""

from __future__ import annotations

import logging
import os
from typing import Annotated

import typer

from skulkd import __version__, flags
from skulkd.node_extra import missing_extra
from skulkd.service.commands import app as service
from skulkd.service.launchd import exit_code_for
from skulkd.settings.files import PRIVATE_UMASK

EXAMPLES = """Examples:

  skulkd run

  skulkd run --listen 0.0.0.0:52415 --name kite1

  skulkd run --peer 192.168.1.6:52416

  skulkd run --listen 127.0.0.1:0 --config ./skulk.yaml -v"""

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    help="The Skulk daemon: one per machine, joins machines into an MLX inference cluster.",
    epilog=EXAMPLES,
)

app.add_typer(service, name="service")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"skulkd {__version__}")
        raise typer.Exit


@app.callback()
def main(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Options of the whole program."""


@app.command("run", epilog=EXAMPLES)
def run_command(  # noqa: PLR0913, PLR0917 - one parameter for each flag
    listen: flags.Listen = None,
    api_port: flags.ApiPort = None,
    tls: flags.Tls = None,
    name: flags.NodeName = None,
    fabric_listen: flags.FabricListen = None,
    peer: flags.Peers = None,
    no_worker: flags.NoWorker = False,
    config: flags.ConfigFile = None,
    verbose: flags.Verbose = 0,
    quiet: flags.Quiet = False,
) -> None:
    """Run the daemon in the foreground until it gets SIGTERM or SIGINT."""
    if missing := missing_extra():
        _fail(1, *missing)
    from skulkd.node import Options, StartError, run_daemon

    # Logs, traces, archives and model files are nobody else's on this machine.
    os.umask(PRIVATE_UMASK)
    given = flags.RunFlags(listen, api_port, tls, name, fabric_listen, peer or ())
    options = Options(
        flags=given.settings(),
        worker=not no_worker,
        config_file=config,
        api_port=api_port,
        log_level=logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO,
    )
    try:
        code = run_daemon(options)
    except StartError as error:
        _fail(exit_code_for(error.exit_code, os.environ), *error.lines)
    raise typer.Exit(code)


def _fail(code: int, *lines: str) -> None:
    for line in lines:
        typer.echo(f"error: {line}" if line is lines[0] else line, err=True)
    raise typer.Exit(code)


def run() -> None:
    """Entry point of the `skulkd` script."""
    app(prog_name="skulkd")


if __name__ == "__main__":
    run()

"""Command line of the daemon. Imports only Typer until it knows that the rest is installed."""

from __future__ import annotations

import importlib.util
import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from skulkd import __version__
from skulkd.settings.files import PRIVATE_UMASK

# What the `node` extra brings, by the name that is imported.
NODE_MODULES = (
    "aiohttp", "psutil", "prometheus_client", "zenoh", "mlx", "mlx_lm", "gguf", "llguidance",
)  # fmt: skip

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


Tls = Annotated[
    bool | None,
    typer.Option("--tls/--no-tls", show_default=False, help="Serve the API over HTTPS, or not."),
]

NodeName = Annotated[str | None, typer.Option(help="Name of this node; default: the host name.")]


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
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where the API listens; port 0: any free one."),
    ] = None,
    api_port: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=65535, help="Only the port of the API."),
    ] = None,
    tls: Tls = None,
    name: NodeName = None,
    fabric_listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where other nodes reach this one; port 0: any."),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="A node to join; may be given several times."),
    ] = None,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Take part in the cluster, run no models.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings file to use.")
    ] = None,
    verbose: Annotated[
        int, typer.Option("-v", "--verbose", count=True, help="Log debug lines, too.")
    ] = 0,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Log warnings only.")] = False,
) -> None:
    """Run the daemon in the foreground until it gets SIGTERM or SIGINT."""
    missing = missing_modules()
    if missing:
        _fail(
            1,
            f"skulkd needs modules that are not installed: {', '.join(missing)}",
            "They come with the extra 'node': pip install 'skulk-toolkit[node]'",
        )
    from skulkd.node import Options, StartError, run_daemon

    # Logs, traces, archives and model files are nobody else's on this machine.
    os.umask(PRIVATE_UMASK)
    options = Options(
        flags={
            "api.listen": listen,
            "api.tls.enabled": tls,
            "node.name": name,
            "cluster.listen": fabric_listen,
            "cluster.peers": peer or None,
        },
        worker=not no_worker,
        config_file=config,
        api_port=api_port,
        log_level=logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO,
    )
    try:
        code = run_daemon(options)
    except StartError as error:
        _fail(error.exit_code, *error.lines)
    raise typer.Exit(code)


def missing_modules() -> list[str]:
    """Those of the node extra that cannot be imported here."""
    return [name for name in NODE_MODULES if importlib.util.find_spec(name) is None]


def _fail(code: int, *lines: str) -> None:
    for line in lines:
        typer.echo(f"error: {line}" if line is lines[0] else line, err=True)
    raise typer.Exit(code)


def run() -> None:
    """Entry point of the `skulkd` script."""
    app(prog_name="skulkd")


if __name__ == "__main__":
    run()

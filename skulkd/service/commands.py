"""`skulkd service`: install, uninstall, status and logs of the daemon as a service."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from skulkd import flags
from skulkd.flags import RunFlags
from skulkd.node_extra import missing_extra
from skulkd.service import host
from skulkd.service.definition import (
    BAD_CONFIGURATION,
    Account,
    Service,
    dropped_variables,
    kept_environment,
)
from skulkd.service.host import ServiceError
from skulkd.service.steps import Manager, Step, Write, install_steps
from skulkd.settings.paths import Paths, find_paths
from skulkd.settings.problems import SettingsError

EXIT_NOT_INSTALLED = 4

INSTALL_EXAMPLES = """Examples:

  skulkd service install

  skulkd service install --listen 0.0.0.0:52415 --peer kite1:52416

  sudo skulkd service install --system --user skulk --dry-run"""

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Run the daemon as a service of systemd or launchd.",
)

System = Annotated[
    bool, typer.Option("--system", help="For the whole machine, not for the current user.")
]
User = Annotated[
    str | None, typer.Option(metavar="NAME", help="Run as this user; with --system only.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be written and run; change nothing.")
]


def _reports_errors(command: Callable[..., None]) -> Callable[..., None]:
    """A ServiceError as lines on stderr and an exit code."""

    @wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except ServiceError as error:
            for line in (f"error: {error.lines[0]}", *error.lines[1:]):
                typer.echo(line, err=True)
            raise typer.Exit(error.exit_code) from None

    return guarded


@app.command("install", epilog=INSTALL_EXAMPLES)
@_reports_errors
def install(  # noqa: PLR0913, PLR0917 - one parameter for each flag
    system: System = False,
    user: User = None,
    dry_run: DryRun = False,
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
    """Install and start the service, or bring it up to date; it starts again after a failure.

    It runs `skulkd run` with the options given here. The unit holds no secrets: the daemon reads
    its secret file, and with systemd the variables in skulkd.env of its configuration directory.
    """
    given = RunFlags(
        listen, api_port, tls, name, fabric_listen, peer or (), no_worker, config,
        verbose > 0, quiet,
    )  # fmt: skip
    account = host.find_account(os.environ, user, system=system)
    service = _service(account, given, system=system)
    manager = host.this_manager(os.environ)
    _check(service, given)
    steps = install_steps(manager, service, host.present_text(manager.file(service)))
    _warn_of_dropped_variables(manager.name, service)
    if dry_run:
        _show(steps)
        return
    host.check_manager(manager, service.command)
    host.check_rights(system=system)
    host.check_access(account, service.command)
    host.carry_out(steps)
    _say_installed(manager, service, changed=isinstance(steps[0], Write))


@app.command("uninstall")
@_reports_errors
def uninstall(system: System = False, dry_run: DryRun = False) -> None:
    """Stop the service and remove it. Configuration, secret and models stay."""
    manager, service = _installed(system=system)
    steps = manager.remove(service)
    file = manager.file(service)
    if not file.exists():
        typer.echo(f"not installed: {file} does not exist")
    elif dry_run:
        _show(steps)
    else:
        host.check_manager(manager, service.command)
        host.check_rights(system=system)
        host.carry_out(steps)
        typer.echo(f"removed {file}")


@app.command("status")
@_reports_errors
def status(system: System = False) -> None:
    """Show whether the service runs, in the words of the service manager."""
    manager, service = _found(system=system)
    raise typer.Exit(subprocess.call(manager.status(service)))


@app.command("logs")
@_reports_errors
def logs(
    system: System = False,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=0, help="Show the last N lines.")
    ] = 100,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Show new lines, too.")] = False,
) -> None:
    """Show what the service has logged."""
    manager, service = _found(system=system)
    raise typer.Exit(subprocess.call(manager.logs(service, lines, follow=follow)))


def _service(account: Account, given: RunFlags, *, system: bool) -> Service:
    return Service(
        command=host.daemon_command(given.arguments()),
        environment=kept_environment(os.environ, system=system),
        account=account,
        system=system,
        secrets_file=_paths(account, system=system).config / "skulkd.env",
    )


def _installed(*, system: bool) -> tuple[Manager, Service]:
    """The service, as far as its name and its place are concerned."""
    uid, home = os.geteuid(), Path(os.environ.get("HOME") or "/")
    service = _service(Account("", uid, home), RunFlags(), system=system)
    return host.this_manager(os.environ), service


def _found(*, system: bool) -> tuple[Manager, Service]:
    manager, service = _installed(system=system)
    file = manager.file(service)
    if not file.exists():
        other = "" if system else " --system"
        raise ServiceError(
            EXIT_NOT_INSTALLED,
            f"the service is not installed: {file} does not exist",
            f"hint: skulkd service install{' --system --user NAME' if system else ''}",
            f"hint: skulkd service status{other}",
        )
    host.check_manager(manager, service.command)
    return manager, service


def _environ(account: Account, *, system: bool) -> dict[str, str]:
    """What the service manager will give to the daemon, as far as paths depend on it."""
    home = account.home
    usual = {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "XDG_CACHE_HOME": str(home / ".cache"),
    }
    return {**usual, **kept_environment(os.environ, system=system)}


def _paths(account: Account, *, system: bool) -> Paths:
    try:
        return find_paths(_environ(account, system=system))
    except SettingsError as error:
        raise ServiceError(BAD_CONFIGURATION, *str(error).splitlines()) from error


def _check(service: Service, given: RunFlags) -> None:
    """Refuse now what the daemon would refuse when it starts."""
    if missing := missing_extra():
        raise ServiceError(host.EXIT_FAILED, *missing)
    from skulkd.settings.running import Sources

    account, environ = service.account, _environ(service.account, system=service.system)
    paths = _paths(account, system=service.system)
    hostname = socket.gethostname()
    sources = Sources(paths, environ, given.settings(), given.config, hostname, account.home)
    try:
        sources.load()
    except SettingsError as error:
        raise ServiceError(BAD_CONFIGURATION, *str(error).splitlines()) from error


def _warn_of_dropped_variables(name: str, service: Service) -> None:
    from skulkd.settings.sources import ENVIRONMENT

    names = dropped_variables(os.environ, [*ENVIRONMENT])
    if names:
        file = "" if name == "launchd" else f" or {service.secrets_file} (mode 0600)"
        where = f"set them in skulk.yaml{file}"
        typer.echo(f"warning: not passed to the service: {', '.join(names)}; {where}", err=True)


def _show(steps: list[Step]) -> None:
    for step in steps:
        typer.echo("\n".join(step.lines()))


def _say_installed(manager: Manager, service: Service, *, changed: bool) -> None:
    file, scope = manager.file(service), " --system" if service.system else ""
    typer.echo(f"{'installed' if changed else 'unchanged'} {file}")
    typer.echo(f"look:  skulkd service status{scope}; skulkd service logs{scope} --follow")
    typer.echo(f"undo:  skulkd service uninstall{scope}")
    if manager.name == "systemd" and not service.system:
        typer.echo("It starts when you log in; to start it at boot: loginctl enable-linger")

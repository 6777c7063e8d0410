"""What a start needs before there is a node: the command line, the settings, the sockets.

Prints nothing; a start that cannot be made is a `StartError` with its exit code.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from skulkd.api.listen import open_sockets
from skulkd.api.tls_setup import NodeTls, prepare_tls
from skulkd.machine.ports import Address, ListenError, PortTaken
from skulkd.settings.paths import find_paths
from skulkd.settings.problems import SettingsError
from skulkd.settings.running import RunningSettings, Sources
from skulkd.settings.secret import ClusterSecret, cluster_secret
from skulkd.wire.config import parse_listen

EXIT_FAILED = 1
EXIT_PORT_TAKEN = 75
EXIT_BAD_SETTINGS = 78

OPEN_FILES = 65_535


class StartError(Exception):
    """The daemon cannot start; the lines are for the operator."""

    def __init__(self, exit_code: int, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.exit_code = exit_code
        self.lines = tuple(lines)


@dataclass(frozen=True, slots=True)
class Options:
    """The command line, as far as the node must know it."""

    flags: Mapping[str, object]
    config_file: Path | None = None
    api_port: int | None = None
    log_level: int = logging.INFO
    worker: bool = True
    platform: str = sys.platform
    """Whose tools read this machine: those of macOS for "darwin", else those of Linux."""


@dataclass(frozen=True, slots=True)
class Start:
    """Everything that a node is built from."""

    settings: RunningSettings
    secret: ClusterSecret
    address: Address
    sockets: Sequence[socket.socket]
    worker: bool = True
    tls: NodeTls = field(default_factory=NodeTls)
    platform: str = sys.platform


def prepare(options: Options) -> Start:
    """Read the settings and the secret, bind the port. Raises StartError."""
    settings = _load(options)
    address = Address(*parse_listen(settings.started.config.api.listen))
    try:
        tls = prepare_tls(settings.started, settings.sources.environ, address)
        secret = cluster_secret(settings.sources.paths, settings.started)
        sockets = open_sockets(address)
    except SettingsError as error:
        raise StartError(EXIT_BAD_SETTINGS, str(error).splitlines()) from error
    except PortTaken as error:
        raise StartError(EXIT_PORT_TAKEN, str(error).splitlines()) from error
    except ListenError as error:
        raise StartError(EXIT_FAILED, [str(error)]) from error
    _raise_open_files()
    return Start(settings, secret, address, sockets, options.worker, tls, options.platform)


def working_directory() -> str:
    """Where the daemon was started; empty when that directory is gone."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""


def _load(options: Options) -> RunningSettings:
    environ = dict(os.environ)
    if not options.worker:
        environ["SKULK_NODE_PARTICIPATION"] = "observer"
    hostname = socket.gethostname()
    try:
        paths = find_paths(environ)
        sources = Sources(
            paths, environ, options.flags, options.config_file, hostname, Path(working_directory())
        )
        settings = sources.load()
        if options.api_port is not None:
            host, _ = parse_listen(settings.config.api.listen)
            listen = str(Address(host, options.api_port))
            sources = replace(sources, flags={**options.flags, "api.listen": listen})
            settings = sources.load()
    except SettingsError as error:
        raise StartError(EXIT_BAD_SETTINGS, str(error).splitlines()) from error
    return RunningSettings(settings, sources)


def _raise_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

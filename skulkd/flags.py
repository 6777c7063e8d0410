"""The options of `skulkd run`, declared once: `run` reads them, `service install` keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

Listen = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Where the API listens; port 0: any free one."),
]
ApiPort = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, max=65535, help="Only the port of the API."),
]
Tls = Annotated[
    bool | None,
    typer.Option("--tls/--no-tls", show_default=False, help="Serve the API over HTTPS, or not."),
]
NodeName = Annotated[str | None, typer.Option(help="Name of this node; default: the host name.")]
FabricListen = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Where other nodes reach this one; port 0: any."),
]
Peers = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST:PORT", help="A node to join; may be given several times."),
]
NoWorker = Annotated[
    bool, typer.Option("--no-worker", help="Take part in the cluster, run no models.")
]
ConfigFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Settings file to use.")]
Verbose = Annotated[int, typer.Option("-v", "--verbose", count=True, help="Log debug lines, too.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Log warnings only.")]


@dataclass(frozen=True, slots=True)
class RunFlags:
    """The values of these options."""

    listen: str | None = None
    api_port: int | None = None
    tls: bool | None = None
    name: str | None = None
    fabric_listen: str | None = None
    peers: Sequence[str] = ()
    no_worker: bool = False
    config: Path | None = None
    verbose: bool = False
    quiet: bool = False

    def settings(self) -> dict[str, object]:
        """Those that override a setting, by its key."""
        return {
            "api.listen": self.listen,
            "api.tls.enabled": self.tls,
            "node.name": self.name,
            "cluster.listen": self.fabric_listen,
            "cluster.peers": list(self.peers) or None,
        }

    def arguments(self) -> list[str]:
        """The command line that gives the same values again, wherever it is run."""
        words = {
            "--listen": self.listen,
            "--api-port": self.api_port,
            "--name": self.name,
            "--fabric-listen": self.fabric_listen,
            "--config": None if self.config is None else self.config.absolute(),
        }
        switches = {
            "--tls": self.tls is True,
            "--no-tls": self.tls is False,
            "--no-worker": self.no_worker,
            "--verbose": self.verbose,
            "--quiet": self.quiet,
        }
        given = [f"{name}={value}" for name, value in words.items() if value is not None]
        peers = [f"--peer={peer}" for peer in self.peers]
        return [*given, *peers, *(name for name, is_set in switches.items() if is_set)]

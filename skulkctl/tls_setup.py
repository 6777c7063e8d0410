"""What an operator does with a node's new certificate: lines for skulk.yaml, and how to copy it."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Mapping
from pathlib import Path

from skulkctl.pki_files import authority_of, pair_of
from skulkd.settings.overrides import same_host


def settings_lines(environ: Mapping[str, str], directory: Path, node: str) -> str:
    """YAML that makes a node use its certificate for links, store and API."""
    place = _shown(environ, directory)
    return (
        f"# add to skulk.yaml on {node}\n"
        "cluster:\n"
        "  tls:\n"
        f"    certificate: {place}/{node}.pem\n"
        f"    key: {place}/{node}.key\n"
        f"    authority: {place}/ca.pem\n"
        "api:\n"
        "  tls:\n"
        "    enabled: true\n"
    )


def copy_hint(environ: Mapping[str, str], directory: Path, node: str) -> str | None:
    """The command that brings the files to the node; None when it is this machine."""
    if same_host(node, socket.gethostname()):
        return None
    pair = pair_of(directory, node)
    files = (pair.certificate, pair.key, authority_of(directory).certificate)
    place = _shown(environ, directory).removeprefix("~/")
    sent = " ".join(shlex.quote(str(file)) for file in files)
    return (
        f"copy the files:  ssh {node} mkdir -pm 700 {shlex.quote(place)} && "
        f"scp -p {sent} {node}:{shlex.quote(place)}/"
    )


def _shown(environ: Mapping[str, str], directory: Path) -> str:
    """The directory as every machine of the same user would write it."""
    home = environ.get("HOME")
    if home and directory.is_relative_to(home):
        return f"~/{directory.relative_to(home)}"
    return str(directory)

"""The directory with the cluster's authority and its nodes' certificates, and how a node gets its
own.

Never replaces a private key unless told to. Private keys are readable by their owner only.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from skulkctl.certificates.authority import Issued
from skulkctl.errors import CliError, NotFound, Refused, UsageMistake
from skulkd.settings.files import create_atomic, make_private_dir, write_atomic
from skulkd.settings.overrides import same_host

AUTHORITY = "ca"
_NODE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Pair:
    """Where a certificate and its key are."""

    certificate: Path
    key: Path

    def existing(self) -> Path | None:
        """A file that is there already."""
        return next((file for file in (self.key, self.certificate) if file.exists()), None)


def pair_of(directory: Path, name: str) -> Pair:
    return Pair(directory / f"{name}.pem", directory / f"{name}.key")


def authority_of(directory: Path) -> Pair:
    return pair_of(directory, AUTHORITY)


def check_node(name: str) -> str:
    """A name for a node's files and certificate. Raises UsageMistake."""
    if name.lower() == AUTHORITY:
        raise UsageMistake(f"a node cannot be named {name}: the CA's files have this name")
    if _is_address(name):
        raise UsageMistake(f"{name} is an address; name the node and add  --ip {name}")
    if not _NODE.fullmatch(name) or ".." in name:
        raise UsageMistake(
            f"{name!r} cannot name a node",
            "use letters, digits, dots, dashes and underscores; begin and end with a letter or "
            "digit; 63 characters at most",
        )
    return name


def read_authority(directory: Path) -> Issued:
    """The authority with its key. Raises NotFound or Refused."""
    pair = authority_of(directory)
    if not pair.certificate.exists():
        raise NotFound(f"no CA in {directory}", hints=[f"skulkctl tls init --dir {directory}"])
    try:
        return Issued(pair.certificate.read_bytes(), pair.key.read_bytes())
    except FileNotFoundError:
        raise NotFound(
            f"the CA's private key is missing: {pair.key}",
            "certificates can be issued only on the machine that has this key",
        ) from None
    except OSError as error:
        raise Refused("cannot read the CA", str(error)) from None


def write_pair(pair: Pair, issued: Issued, *, replace: bool) -> None:
    """Both files. Raises Refused when there is one and it must not be replaced."""
    found = pair.existing()
    if found is not None and not replace:
        raise _exists(found)
    try:
        make_private_dir(pair.certificate.parent)
        if replace:
            write_atomic(pair.key, issued.key, mode=0o600)
        elif not create_atomic(pair.key, issued.key, mode=0o600):
            raise _exists(pair.key)
        write_atomic(pair.certificate, issued.certificate, mode=0o644)
    except OSError as error:
        raise CliError("cannot write the certificate", str(error)) from error


def _exists(file: Path) -> Refused:
    return Refused(
        f"{file} already exists",
        hints=["extend it:  add --renew", "overwrite it:  add --force"],
    )


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


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True

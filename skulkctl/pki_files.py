"""The directory with the cluster's authority and its nodes' certificates.

Never replaces a private key unless told to. Private keys are readable by their owner only.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from skulkctl.authority import Issued
from skulkctl.errors import CliError, NotFound, Refused, UsageMistake
from skulkd.settings.files import create_atomic, make_private_dir, write_atomic

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
        raise UsageMistake(f"a node cannot be called {name}: these are the authority's files")
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
        raise NotFound(
            f"no authority in {directory}", hints=[f"skulkctl tls init{_option(directory)}"]
        )
    try:
        return Issued(pair.certificate.read_bytes(), pair.key.read_bytes())
    except FileNotFoundError:
        raise NotFound(
            f"no private key of the authority: {pair.key}",
            "certificates can be issued only on the machine that has it",
        ) from None
    except OSError as error:
        raise Refused("cannot read the authority", str(error)) from None


def write_pair(pair: Pair, issued: Issued, *, replace: bool) -> None:
    """Both files. Raises Refused when there is one and it must not be replaced."""
    found = pair.existing()
    if found is not None and not replace:
        raise Refused(f"{found} is there already")
    try:
        make_private_dir(pair.certificate.parent)
        if replace:
            write_atomic(pair.key, issued.key, mode=0o600)
        elif not create_atomic(pair.key, issued.key, mode=0o600):
            raise Refused(f"{pair.key} is there already")
        write_atomic(pair.certificate, issued.certificate, mode=0o644)
    except OSError as error:
        raise CliError("cannot write the certificate", str(error)) from error


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _option(directory: Path) -> str:
    return f" --dir {directory}"

"""Certificates as an operator would make them: one authority, one certificate for each node."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from skulkctl.certificates.authority import issue, make_authority
from skulkctl.certificates.files import authority_of, pair_of, read_authority, write_pair
from skulkd.settings.tls import TlsFiles


def make_certificates(home: Path, *names: str) -> None:
    """`ca.pem`, and `NAME.pem` with `NAME.key` for each name."""
    write_pair(authority_of(home), make_authority("tests"), replace=True)
    for name in names:
        # Not the address under which it is dialled: that is not checked between nodes.
        make_certificate(home, name, [name])


def make_certificate(
    home: Path, name: str, names: Sequence[str], days: int = 2, now: datetime | None = None
) -> TlsFiles:
    """One more certificate of the authority in `home`, for these names and addresses."""
    issued = issue(read_authority(home), name, names, days, now)
    write_pair(pair_of(home, name), issued, replace=True)
    return tls_files(home, name)


def tls_files(home: Path, name: str) -> TlsFiles:
    return TlsFiles(home / f"{name}.pem", home / f"{name}.key", home / "ca.pem")

"""The certificates in use: loaded again when their files change, and told to whoever asks.

A new file that cannot be used leaves the old certificate in use and is reported.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from skulkd.settings.certificates import Certificate, day
from skulkd.settings.problems import SettingsError
from skulkd.wire.cluster import NodeCertificate, NodeWarning

LOOK_S = 1.0
WARN_DAYS = 30
_RENEW = "Renew it: skulkctl tls issue NODE --renew, then copy the new files to this node."
_RESTART = "Restart this node: skulkctl restart NODE"

log = logging.getLogger(__name__)

Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(slots=True)
class CertificateUse:
    """One certificate and what this node does with it.

    `check` reads the files and raises SettingsError; `reload` makes new connections use them.
    """

    use: Literal["api", "cluster"]
    files: Sequence[Path]
    loaded: Certificate
    check: Callable[[], Certificate]
    reload: Callable[[], None]
    needs_restart: bool = False
    """Some connections take a new certificate only after a restart: the links between nodes."""
    problem: str | None = None
    renewed: Certificate | None = None
    """On disk, and not in use before a restart."""


class TlsWatch:
    """`run` it beside the node."""

    def __init__(self, uses: Sequence[CertificateUse] = ()) -> None:
        self._uses = tuple(uses)
        self._seen = {one.use: _stamp(one.files) for one in self._uses}
        self._applied = dict(self._seen)
        self._warned_on: dict[str, int] = {}

    async def run(self) -> None:
        """Look at the files again and again, until cancelled."""
        if not self._uses:
            await asyncio.get_running_loop().create_future()
        while True:
            for one in self._uses:
                await self._look(one)
            await asyncio.sleep(LOOK_S)

    def certificates(self) -> list[NodeCertificate]:
        """What other nodes and clients are shown."""
        return [
            NodeCertificate(
                use=one.use,
                file=str(one.files[0]),
                subject=one.loaded.subject,
                names=list(one.loaded.names),
                issuer=one.loaded.issuer,
                expires_at=one.loaded.not_after,
            )
            for one in self._uses
        ]

    def warnings(self) -> list[NodeWarning]:
        """Files that cannot be used, and certificates that wait for a restart."""
        found = []
        for one in self._uses:
            if (readable := _readable_key(one.files[1])) is not None:
                found.append(readable)
            if one.problem is not None:
                found.append(NodeWarning(message=_kept(one), remediation=_RENEW))
            if one.renewed is not None:
                message = f"{_whose(one)}: the new certificate is not in use yet; the old one "
                message += f"expires on {day(one.loaded.not_after)}"
                found.append(NodeWarning(message=message, remediation=_RESTART))
        # API and links often share their files.
        return list(dict.fromkeys(found))

    async def _look(self, one: CertificateUse) -> None:
        self._warn_of_expiry(one)
        stamp = await asyncio.to_thread(_stamp, one.files)
        before, self._seen[one.use] = self._seen[one.use], stamp
        # Certificate and key are two files: while one is being replaced they do not fit.
        if stamp == self._applied[one.use] or stamp != before:
            return
        self._applied[one.use] = stamp
        try:
            certificate = await asyncio.to_thread(one.check)
            self._apply(one, certificate)
        except (SettingsError, OSError) as error:
            one.problem = " ".join(str(error).split())
            log.warning("%s", _kept(one))

    def _apply(self, one: CertificateUse, certificate: Certificate) -> None:
        one.problem = None
        one.renewed = None
        one.reload()
        if not one.needs_restart:
            one.loaded = certificate
            until = day(certificate.not_after)
            log.info("%s: new certificate loaded, valid until %s", _whose(one), until)
        elif certificate.fingerprint != one.loaded.fingerprint:
            one.renewed = certificate
            log.warning("%s: the new certificate is used after a restart", _whose(one))

    def _warn_of_expiry(self, one: CertificateUse) -> None:
        """Once a day, and once more when it is over."""
        left = one.loaded.days_left(datetime.now(UTC))
        if left < WARN_DAYS and self._warned_on.get(one.use) != left:
            self._warned_on[one.use] = left
            verb = "expires" if left >= 0 else "has expired"
            moment = day(one.loaded.not_after)
            log.warning("%s: the certificate %s on %s. %s", _whose(one), verb, moment, _RENEW)


class TlsCollector(Collector):
    """Expiry for `/metrics`; nothing without TLS."""

    def __init__(self, watch: TlsWatch) -> None:
        self._watch = watch

    def collect(self) -> Iterator[Metric]:
        expiry = GaugeMetricFamily(
            "skulk_tls_certificate_expiry_timestamp_seconds",
            "When the certificate in use expires, in seconds since 1970",
            labels=["use"],
        )
        for one in self._watch.certificates():
            expiry.add_metric([one.use], one.expires_at.timestamp())
        yield expiry


def _readable_key(key: Path) -> NodeWarning | None:
    try:
        is_open = key.stat().st_mode & 0o007
    except OSError:
        return None  # said as a problem of the files
    if not is_open:
        return None
    message = f"every user of this machine can read the private key {key}"
    return NodeWarning(message=message, remediation=f"Run: chmod 600 {key}")


def _whose(one: CertificateUse) -> str:
    return "the API" if one.use == "api" else "links between nodes"


def _kept(one: CertificateUse) -> str:
    return (
        f"{_whose(one)}: the new certificate cannot be used, the old one stays in use: "
        f"{one.problem}"
    )


def _stamp(files: Sequence[Path]) -> Stamp:
    """Changes whenever one of the files does."""
    return tuple(_stat(file) for file in files)


def _stat(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino

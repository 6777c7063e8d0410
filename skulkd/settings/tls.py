"""Which TLS files the settings name, for links between nodes, for the store and for the API.

Expands paths and checks files; opens no connection.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from skulkd.settings.certificates import Certificate, CertificateError, Purpose, check_files
from skulkd.settings.paths import expand_home
from skulkd.settings.problems import Problem, SettingsError
from skulkd.wire.config import ApiTlsSection, SkulkConfig

BOTH: tuple[Purpose, ...] = ("server", "client")
CLUSTER, API = "cluster.tls", "api.tls"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificate and key of this node, and the authority that signed those of all nodes."""

    certificate: Path
    key: Path
    authority: Path


@dataclass(frozen=True, slots=True)
class ApiTlsFiles:
    """What the API shows to clients; no authority means one that every system knows."""

    section: str
    """The settings that name the files: `api.tls`, or `cluster.tls` when they are shared."""
    certificate: Path
    key: Path
    authority: Path | None
    minimum: ssl.TLSVersion


def cluster_files(config: SkulkConfig, environ: Mapping[str, str]) -> TlsFiles | None:
    """The files for links between nodes; None when those are not encrypted."""
    tls = config.cluster.tls
    if tls is None:
        return None
    return TlsFiles(
        expand_home(tls.certificate, environ),
        expand_home(tls.key, environ),
        expand_home(tls.authority, environ),
    )


def api_files(config: SkulkConfig, environ: Mapping[str, str]) -> ApiTlsFiles | None:
    """The files for the API; None when it is plain HTTP."""
    tls = config.api.tls
    if tls is None or not tls.enabled:
        return None
    minimum = ssl.TLSVersion.TLSv1_3 if tls.minimum_version == "1.3" else ssl.TLSVersion.TLSv1_2
    shared = cluster_files(config, environ)
    if tls.certificate is not None and tls.key is not None:
        certificate, key = expand_home(tls.certificate, environ), expand_home(tls.key, environ)
        return ApiTlsFiles(API, certificate, key, _authority(tls, environ), minimum)
    if shared is None:
        raise SettingsError([Problem("needs files, or cluster.tls to take them from", key=API)])
    authority = _authority(tls, environ) or shared.authority
    return ApiTlsFiles(CLUSTER, shared.certificate, shared.key, authority, minimum)


def store_files(config: SkulkConfig, environ: Mapping[str, str]) -> TlsFiles | None:
    """The files for the store server and its clients, which both show a certificate.

    Those of `cluster.tls`; without it those of `api.tls`, if an authority is named there.
    """
    api = api_files(config, environ)
    if config.cluster.tls is None and api is not None and api.authority is not None:
        return TlsFiles(api.certificate, api.key, api.authority)
    return cluster_files(config, environ)


def check_section(
    section: str, files: TlsFiles | ApiTlsFiles, purposes: Iterable[Purpose]
) -> Certificate:
    """The certificate, when all files can be used. Raises SettingsError that names key and file."""
    try:
        return check_files(files.certificate, files.key, files.authority, purposes)
    except CertificateError as error:
        text = f"{error.file}: {error.why}"
        raise SettingsError([Problem(text, key=f"{section}.{error.key}")]) from error


def _authority(tls: ApiTlsSection, environ: Mapping[str, str]) -> Path | None:
    return None if tls.authority is None else expand_home(tls.authority, environ)

"""TLS of one node, from its settings: contexts for the API and the store, and watched files.

Checks every file before anything listens.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from skulkd.api.tls_watch import CertificateUse, TlsWatch
from skulkd.machine.ports import Address, is_local, is_loopback
from skulkd.settings.certificates import Certificate
from skulkd.settings.load import Settings
from skulkd.settings.local_api import LocalApi
from skulkd.settings.overrides import host_aliases, same_host
from skulkd.settings.problems import Problem, SettingsError
from skulkd.settings.tls import (
    API,
    BOTH,
    CLUSTER,
    ApiTlsFiles,
    TlsFiles,
    api_files,
    check_section,
    cluster_files,
    store_files,
)
from skulkd.store.security import StoreTls, store_tls

THIS_MACHINE = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class NodeTls:
    """What of this node is encrypted; None where nothing is."""

    api: ssl.SSLContext | None = None
    api_files: ApiTlsFiles | None = None
    api_certificate: Certificate | None = None
    store: StoreTls | None = None
    watch: TlsWatch = field(default_factory=TlsWatch)


def prepare_tls(settings: Settings, environ: Mapping[str, str], address: Address) -> NodeTls:
    """Check the files and make the contexts. Raises SettingsError that names key and file."""
    config = settings.config
    cluster, api = cluster_files(config, environ), api_files(config, environ)
    shared = store_files(config, environ)
    own_cluster = None if cluster is None else check_section(CLUSTER, cluster, BOTH)
    own_api = None
    if api is not None:
        hosts = own_hosts(settings, address)
        own_api = _check_api(api, hosts, mutual=shared is not None and cluster is None)
    store = None if shared is None else _store_contexts(shared, CLUSTER if cluster else API)
    context = None if api is None else _api_context(api)
    uses = []
    if api is not None and own_api is not None and context is not None:
        uses.append(_api_use(api, own_api, context, settings, address, None if cluster else store))
    if cluster is not None and own_cluster is not None:
        uses.append(_cluster_use(cluster, own_cluster, store))
    return NodeTls(context, api, own_api, store, TlsWatch(uses))


def local_api(tls: NodeTls, settings: Settings, address: Address, pid: int) -> LocalApi:
    """How `skulkctl` on this machine reaches the API."""
    if tls.api_files is None or tls.api_certificate is None:
        return LocalApi(_reachable(address).url(tls=False), None, pid)
    certificate, hosts = tls.api_certificate, own_hosts(settings, address)
    here = THIS_MACHINE if _is_wildcard(address.host) else (address.host,)
    known = [name for name in certificate.names if "*" not in name and _fits(name, hosts)]
    candidates = [*here, *hosts, *known]
    host = next((one for one in candidates if certificate.covers(one)), candidates[0])
    authority = tls.api_files.authority
    return LocalApi(
        Address(host, address.port).url(tls=True),
        None if authority is None else str(authority.absolute()),
        pid,
    )


def _reachable(address: Address) -> Address:
    """An address that a client on this machine can connect to."""
    if not _is_wildcard(address.host):
        return address
    is_v6 = ipaddress.ip_address(address.host).version == 6
    return Address("::1" if is_v6 else "127.0.0.1", address.port)


def own_hosts(settings: Settings, address: Address) -> list[str]:
    """Names and addresses by which clients may reach the API of this node."""
    tls = settings.config.api.tls
    given = [] if tls is None else list(tls.names)
    host = address.host
    if is_local(host):
        return [*given, host, *THIS_MACHINE]
    own = sorted(host_aliases(settings.node_name) | host_aliases(settings.hostname))
    return [*given, *own, *(_interfaces() if _is_wildcard(host) else [host])]


def _check_api(files: ApiTlsFiles, hosts: Iterable[str], *, mutual: bool) -> Certificate:
    certificate = check_section(files.section, files, BOTH if mutual else ("server",))
    if any(certificate.covers(host) for host in hosts):
        return certificate
    if any(_fits(name, hosts) for name in certificate.names):
        return certificate
    named = ", ".join(certificate.names)
    why = f"is for {named}" if named else "has no subjectAltName, so no client accepts it"
    shown = ", ".join(list(dict.fromkeys(hosts))[:4])
    message = (
        f"{files.certificate}: {why}; this node is reached as {shown}. Issue one for it with "
        f"skulkctl tls issue, or name what clients use in {API}.names"
    )
    raise SettingsError([Problem(message, key=f"{files.section}.certificate")])


def _api_use(
    files: ApiTlsFiles,
    certificate: Certificate,
    context: ssl.SSLContext,
    settings: Settings,
    address: Address,
    store: StoreTls | None,
) -> CertificateUse:
    def check() -> Certificate:
        found = _check_api(files, own_hosts(settings, address), mutual=store is not None)
        # A pair that OpenSSL does not take must not half replace the one in use.
        _api_context(files)
        return found

    def reload() -> None:
        context.load_cert_chain(files.certificate, files.key)
        if store is not None:
            store.reload()

    watched = [files.certificate, files.key, *([files.authority] if files.authority else [])]
    return CertificateUse("api", watched, certificate, check, reload)


def _cluster_use(
    files: TlsFiles, certificate: Certificate, store: StoreTls | None
) -> CertificateUse:
    def check() -> Certificate:
        found = check_section(CLUSTER, files, BOTH)
        _store_contexts(files, CLUSTER)
        return found

    def reload() -> None:
        if store is not None:
            store.reload()

    watched = [files.certificate, files.key, files.authority]
    return CertificateUse("cluster", watched, certificate, check, reload, needs_restart=True)


def _api_context(files: ApiTlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = files.minimum
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(files.certificate, files.key)
    except OSError as error:
        raise _not_taken(files.section, files.certificate, error) from error
    return context


def _store_contexts(files: TlsFiles, section: str) -> StoreTls:
    try:
        return store_tls(files)
    except OSError as error:
        raise _not_taken(section, files.certificate, error) from error


def _not_taken(section: str, certificate: Path, error: OSError) -> SettingsError:
    """OpenSSL refuses what reads well, such as a key that is too short."""
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    message = f"{certificate}: OpenSSL does not accept it: {reason.replace('_', ' ').lower()}"
    return SettingsError([Problem(message, key=f"{section}.certificate")])


def _fits(name: str, hosts: Iterable[str]) -> bool:
    return any(same_host(name, host) for host in hosts if not _is_ip(host))


def _is_wildcard(host: str) -> bool:
    return _is_ip(host) and ipaddress.ip_address(host).is_unspecified


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _interfaces() -> list[str]:
    """Addresses of this machine that others can use."""
    found = [one.address for all_of in psutil.net_if_addrs().values() for one in all_of]
    plain = [text.partition("%")[0] for text in found]
    return [text for text in plain if _is_ip(text) and not is_loopback(text)]

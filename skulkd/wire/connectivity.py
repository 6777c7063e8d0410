"""Addresses under which a node can be reached."""

from pydantic import Field

from skulkd.wire.base import CamelModel


class TailscaleStatus(CamelModel):
    running: bool
    self_ip: str | None = None
    hostname: str | None = None
    dns_name: str | None = None
    tailnet: str | None = None
    version: str | None = None
    peer_ips: list[str] = Field(default_factory=list)


class LocalAccess(CamelModel):
    ip: str | None
    port: int
    url: str | None


class TailscaleAccess(CamelModel):
    running: bool
    ip: str | None = None
    dns_name: str | None = None
    port: int
    url: str | None = None


class RemoteAccessInfo(CamelModel):
    local: LocalAccess
    tailscale: TailscaleAccess
    preferred_url: str | None
    operator_url: str | None

"""Enrolling this node with a gateway: the calls, the responses, and what is stored of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import aiohttp

from skulkd.swarm.errors import ConfigError, GatewayError, NotEnrolled
from skulkd.swarm.gateway import Gateway
from skulkd.swarm.gateway_urls import JobUrls, check_gateway_url, stored_templates
from skulkd.swarm.js_values import (
    first_text,
    is_header_token,
    is_name,
    is_number,
    is_plain_id,
    iso_time,
    machine_fingerprint,
    mapping_of,
    optional_text,
    parse_positive_integer,
)
from skulkd.swarm.node_config import (
    NodeConfig,
    NodeSettings,
    Options,
    State,
    node_config,
    setup_config,
)
from skulkd.swarm.node_files import NodeFiles
from skulkd.swarm.telemetry import Report

BAD_TOKEN = "the stored runtime token cannot be sent in a header; run: skulkctl swarm setup"  # noqa: S105 - a sentence
MAX_INTERVAL_S = 3600
PROBE_TIMEOUT_MS = 2000
_SWITCH_KEYS = ("drain_mode", "load_reporting_enabled", "hardware_telemetry_enabled")
_BOOTSTRAP_KEYS = (
    "heartbeat_interval_seconds",
    "max_concurrent_jobs",
    "max_concurrent_llm_jobs",
    *_SWITCH_KEYS,
    "generic_job_max_concurrency",
)
_JOB_KEYS = (
    "request_timeout_ms",
    "job_timeout_ms",
    "max_concurrent_jobs",
    "max_concurrent_llm_jobs",
    "generic_jobs_enabled",
    "generic_job_timeout_ms",
    "generic_job_max_concurrency",
)


@dataclass(frozen=True, slots=True)
class GatewayEnrolment:
    """At most one enrolment. Methods raise ConfigError for settings or files that are unusable."""

    files: NodeFiles
    environ: Mapping[str, str]
    hostname: str
    version: str
    now: Callable[[], datetime]

    def config(self) -> NodeConfig | None:
        config = node_config(self.environ, self.files.read_state())
        if config is not None:
            check_gateway_url(config.gateway_base_url)
        return config

    def required(self) -> NodeConfig:
        """Raises NotEnrolled."""
        config = self.config()
        if config is None:
            raise NotEnrolled("this node is not enrolled with a gateway")
        return config

    def token(self, config: NodeConfig) -> str | None:
        """The runtime token. Raises ConfigError for one that no request could carry."""
        legacy = self.files.read_state().get("runtime_token")
        token = first_text(config.runtime_token, self.files.read_token(), legacy)
        if token is not None and not is_header_token(token):
            raise ConfigError(BAD_TOKEN)
        return token

    def planned(self, options: Options) -> NodeSettings:
        """What a setup with these options would use."""
        settings = setup_config(options, self.environ, self.hostname)
        check_gateway_url(settings.gateway_base_url)
        return settings

    async def bootstrap(self, api_key: str, options: Options) -> None:
        """Register with an owner's key, which is not kept. Raises GatewayError."""
        if not is_header_token(api_key):
            raise ConfigError("apiKey must be 1 to 4096 visible ASCII characters without spaces")
        settings = self.planned(options)
        fingerprint = machine_fingerprint(await asyncio.to_thread(self.files.machine_id))
        async with self.gateway(settings) as gateway:
            body = bootstrap_body(settings, fingerprint, self.version)
            response = await gateway.bootstrap(api_key, body)
        await self._store(settings, response, None, fingerprint)

    async def enroll(self, node_id: str, enrollment_token: str, options: Options) -> Report:
        """Exchange a one-time token for a runtime token. Raises GatewayError."""
        settings = self.planned(options)
        async with self.gateway(settings) as gateway:
            body = {"node_id": node_id, "enrollment_token": enrollment_token}
            response = await gateway.enroll(body)
        await self._store(settings, response, node_id, None)
        return {"enrolled": True, "node_id": node_id, "state_path": str(self.files.state_file)}

    async def enroll_if_needed(self, config: NodeConfig) -> bool:
        """A node that has a one-time token in its environment and no other exchanges it."""
        if self.token(config) is not None or config.enrollment_token is None:
            return False
        options = {"gateway": config.gateway_base_url, "server-name": config.server_name}
        await self.enroll(config.node_id, config.enrollment_token, options)
        return True

    async def _store(
        self,
        settings: NodeSettings,
        raw: Mapping[str, Any],
        node_id: str | None,
        fingerprint: str | None,
    ) -> None:
        response = EnrolmentResponse.parse(raw, node_id)
        now = iso_time(self.now())
        state = enrolled_state(settings, response, fingerprint, self.version, now)
        # The token first: a state without it would be an enrolment that cannot authenticate.
        await asyncio.to_thread(self.files.write_token, response.runtime_token)
        await asyncio.to_thread(self.files.write_state, {**state, **stored_templates(raw)})

    async def uninstall(self, config: NodeConfig | None) -> Report:
        """Tell the gateway that this node leaves, if it can be reached."""
        if config is None:
            return {"notified": False, "error": "the stored enrolment cannot be used"}
        body = {
            "node_id": config.node_id,
            "reason": "node_uninstall",
            "source": "mswarm_node_uninstall",
            "node_version": self.version,
            "service_manager": "skulkd",
        }
        try:
            if self.token(config) is None:
                return {"notified": False}
            async with self.gateway(config) as gateway:
                return {"notified": True, "response": await gateway.uninstall(body)}
        except (ConfigError, GatewayError) as error:
            return {"notified": False, "error": str(error)}

    @asynccontextmanager
    async def http(self) -> AsyncIterator[aiohttp.ClientSession]:
        agent = {"user-agent": f"skulkd/{self.version}"}
        # No compression is requested, so none is undone.
        async with aiohttp.ClientSession(headers=agent, auto_decompress=False) as http:
            yield http

    @asynccontextmanager
    async def gateway(self, settings: NodeSettings) -> AsyncIterator[Gateway]:
        async with self.http() as http:
            yield self.client(settings, http)

    def client(
        self, settings: NodeSettings, http: aiohttp.ClientSession, urls: JobUrls | None = None
    ) -> Gateway:
        """With the token of an enrolled node; one that is being set up has none."""

        def token() -> str:
            return (self.token(settings) if isinstance(settings, NodeConfig) else None) or ""

        timeout_s = settings.request_timeout_ms / 1000
        return Gateway(settings.gateway_base_url, http, timeout_s, token, urls)


def bootstrap_body(settings: NodeSettings, fingerprint: str, version: str) -> dict[str, Any]:
    """A new node as the gateway sees it, keys in the reference's order."""
    return {
        "machine_fingerprint": fingerprint,
        "server_name": settings.server_name,
        "label": settings.server_name,
        "relay_mode": settings.relay_mode,
        "direct_base_url": None,
        "node_version": version,
        "discovery_mode": "mcoda",
        "expose_all_models": settings.exposure.expose_all,
        "model_allowlist": list(settings.exposure.allow),
        "model_blocklist": list(settings.exposure.block),
        **{key: getattr(settings, key) for key in _BOOTSTRAP_KEYS},
    }


@dataclass(frozen=True, slots=True)
class EnrolmentResponse:
    """The checked response of the gateway to a bootstrap or enrol call."""

    node_id: str
    runtime_token: str = field(repr=False)
    server_name: str | None = None
    relay_mode: str | None = None
    config_version: int | None = None
    heartbeat_interval_s: int | None = None
    heartbeat_timeout_s: int | None = None

    @classmethod
    def parse(cls, response: Mapping[str, Any], node_id: str | None = None) -> EnrolmentResponse:
        """Raises GatewayError when it cannot be used."""
        node = mapping_of(response.get("node"))
        known = first_text(node.get("node_id"), node_id)
        token = optional_text(response.get("runtime_token"))
        if known is None or token is None:
            missing = "node.node_id" if known is None else "runtime_token"
            raise GatewayError(f"the gateway answered without {missing}")
        if not is_plain_id(known):
            raise GatewayError("the gateway answered with a node.node_id that is no plain id")
        if not is_header_token(token):
            raise GatewayError("the gateway answered with a runtime_token that cannot be sent")
        version = response.get("config_version")
        name = optional_text(node.get("server_name"))
        mode = optional_text(node.get("relay_mode"))
        return cls(
            known,
            token,
            name if is_name(name) else None,
            mode if mode in {"outbound", "direct"} else None,
            version if isinstance(version, int) and is_number(version) else None,
            _seconds(response.get("heartbeat_interval_seconds")),
            _seconds(response.get("heartbeat_timeout_seconds")),
        )


def _seconds(value: object) -> int | None:
    seconds = parse_positive_integer(value, 0)
    return min(seconds, MAX_INTERVAL_S) or None


def enrolled_state(
    settings: NodeSettings,
    response: EnrolmentResponse,
    fingerprint: str | None,
    version: str,
    now: str,
) -> State:
    """The state file after setup, keys in the reference's order; no secret is in it."""
    interval_s = response.heartbeat_interval_s or settings.heartbeat_interval_seconds
    whole: State = {
        "node_id": response.node_id,
        "server_name": response.server_name or settings.server_name,
        "relay_mode": response.relay_mode or settings.relay_mode,
        "machine_fingerprint": fingerprint,
        "direct_base_url": None,
        "config_version": response.config_version,
        "heartbeat_interval_seconds": interval_s,
        "heartbeat_timeout_seconds": response.heartbeat_timeout_s,
        "enrolled_at": now,
        "updated_at": now,
        "gateway_base_url": settings.gateway_base_url,
        "discovery_mode": "mcoda",
        "node_version": version,
        **{key: getattr(settings, key) for key in _JOB_KEYS},
        "capability_probe_timeout_ms": PROBE_TIMEOUT_MS,
        **{key: getattr(settings, key) for key in _SWITCH_KEYS},
        "expose_all_models": settings.exposure.expose_all,
        "exposure_policy": "all" if settings.exposure.expose_all else "none",
        "model_allowlist": list(settings.exposure.allow),
        "model_blocklist": list(settings.exposure.block),
    }
    optional = {"machine_fingerprint", "config_version", "heartbeat_timeout_seconds"}
    return {key: value for key, value in whole.items() if value is not None or key not in optional}

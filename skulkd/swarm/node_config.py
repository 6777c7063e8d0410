"""The settings of a gateway node: environment, then state file, then default. Pure.

Names, defaults and the odd parsing are the reference's, so that its owners find what they know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from skulkd.swarm.answers import is_header_token, is_name, is_plain_id
from skulkd.swarm.catalog import Exposure
from skulkd.swarm.errors import ConfigError, GatewayError
from skulkd.swarm.exposure_policy import PREFIX, daemon_exposes_all, setup_exposes_all
from skulkd.swarm.script_values import (
    first_text,
    is_number,
    normalize_server_name,
    optional_text,
    parse_boolean,
    parse_list,
    parse_positive_integer,
)
from skulkd.swarm.telemetry import Limits

SETUP_GATEWAY = "https://api.mswarm.org"
HEARTBEAT_S = 30
LONGEST_INTERVAL_S = 3600
REQUEST_TIMEOUT_MS = 10_000
JOB_TIMEOUT_MS = 3_600_000
PROBE_TIMEOUT_MS = 2000

RelayMode = Literal["outbound", "direct"]
State = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A gateway node as it is to run."""

    gateway_base_url: str
    node_id: str
    server_name: str
    relay_mode: RelayMode = "outbound"
    heartbeat_interval_s: int = HEARTBEAT_S
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    job_timeout_ms: int = JOB_TIMEOUT_MS
    generic_timeout_ms: int = JOB_TIMEOUT_MS
    max_jobs: int = 1
    max_llm_jobs: int = 1
    generic_enabled: bool = False
    max_generic_jobs: int = 1
    drain: bool = False
    load_reporting: bool = True
    hardware: bool = False
    exposure: Exposure = field(default_factory=Exposure)
    enrollment_token: str | None = field(default=None, repr=False)
    runtime_token: str | None = field(default=None, repr=False)

    def limits(self, *, draining: bool) -> Limits:
        return Limits(
            max_jobs=self.max_jobs,
            max_llm_jobs=self.max_llm_jobs,
            generic_enabled=self.generic_enabled,
            max_generic_jobs=self.max_generic_jobs,
            drain=draining or self.drain,
            hardware=self.hardware,
        )


def node_config(environ: Mapping[str, str], state: Mapping[str, Any]) -> NodeConfig | None:
    """How to run; None while neither environment nor state know a node id.

    Raises ConfigError.
    """
    env = _Env(environ)
    node_id = first_text(env("NODE_ID"), state.get("node_id"))
    if node_id is None:
        return None
    gateway = first_text(
        environ.get("MSWARM_GATEWAY_BASE_URL"), state.get("gateway_base_url"), SETUP_GATEWAY
    )
    job_ms = parse_positive_integer(
        env("JOB_TIMEOUT_MS"), _integer(state, "job_timeout_ms", JOB_TIMEOUT_MS)
    )
    jobs = parse_positive_integer(
        env("MAX_CONCURRENT_JOBS"), _integer(state, "max_concurrent_jobs", 1)
    )
    relay = first_text(env("RELAY_MODE"), state.get("relay_mode"))
    return NodeConfig(
        gateway_base_url=(gateway or SETUP_GATEWAY).rstrip("/"),
        node_id=node_id,
        server_name=first_text(env("SERVER_NAME"), state.get("server_name")) or "local-node",
        relay_mode="direct" if relay == "direct" else "outbound",
        heartbeat_interval_s=parse_positive_integer(
            env("HEARTBEAT_INTERVAL_SECONDS"),
            _integer(state, "heartbeat_interval_seconds", HEARTBEAT_S),
        ),
        request_timeout_ms=parse_positive_integer(
            env("REQUEST_TIMEOUT_MS"), _integer(state, "request_timeout_ms", REQUEST_TIMEOUT_MS)
        ),
        job_timeout_ms=job_ms,
        generic_timeout_ms=parse_positive_integer(
            env("GENERIC_JOB_TIMEOUT_MS"), _integer(state, "generic_job_timeout_ms", job_ms)
        ),
        max_jobs=jobs,
        max_llm_jobs=parse_positive_integer(
            env("MAX_CONCURRENT_LLM_JOBS"), _integer(state, "max_concurrent_llm_jobs", jobs)
        ),
        generic_enabled=parse_boolean(
            env("GENERIC_JOBS_ENABLED", "GENERIC_JOBS"), state.get("generic_jobs_enabled") is True
        ),
        max_generic_jobs=parse_positive_integer(
            env("GENERIC_JOB_MAX_CONCURRENCY"), _integer(state, "generic_job_max_concurrency", 1)
        ),
        drain=parse_boolean(env("DRAIN_MODE"), state.get("drain_mode") is True),
        load_reporting=parse_boolean(
            env("LOAD_REPORTING_ENABLED", "LOAD_REPORTING"),
            state.get("load_reporting_enabled") is not False,
        ),
        hardware=parse_boolean(
            env("HARDWARE_TELEMETRY_ENABLED", "HARDWARE_TELEMETRY"),
            state.get("hardware_telemetry_enabled") is True,
        ),
        exposure=_exposure(env, environ, state),
        enrollment_token=optional_text(env("ENROLLMENT_TOKEN")),
        runtime_token=first_text(env("RUNTIME_TOKEN")),
    )


def _exposure(env: _Env, environ: Mapping[str, str], state: Mapping[str, Any]) -> Exposure:
    return Exposure(
        daemon_exposes_all(environ, state),
        parse_list(env("MODEL_ALLOWLIST") or state.get("model_allowlist")),
        parse_list(env("MODEL_BLOCKLIST") or state.get("model_blocklist")),
    )


@dataclass(frozen=True, slots=True)
class Setup:
    """What an owner says when a node is made known to a gateway."""

    gateway_base_url: str
    server_name: str
    relay_mode: RelayMode
    direct_base_url: str | None
    heartbeat_interval_s: int
    request_timeout_ms: int
    job_timeout_ms: int
    max_jobs: int
    max_llm_jobs: int
    generic_enabled: bool
    generic_timeout_ms: int
    max_generic_jobs: int
    drain: bool
    load_reporting: bool
    hardware: bool
    exposure: Exposure


def setup_config(options: Mapping[str, Any], environ: Mapping[str, str], hostname: str) -> Setup:
    """Options by the reference's names (`max-concurrent-jobs`), then the environment.

    Raises ConfigError.
    """
    env = _Env(environ)
    gateway = first_text(
        options.get("gateway"), environ.get("MSWARM_GATEWAY_BASE_URL"), SETUP_GATEWAY
    )
    mode = first_text(options.get("mode"), env("RELAY_MODE")) or "outbound"
    if mode != "outbound":
        raise ConfigError(
            f"mode {mode} is not offered here: a skulk node asks the gateway for work (outbound)"
            " and opens no port for it"
        )
    jobs = _option(options, "max-concurrent-jobs", env("MAX_CONCURRENT_JOBS"), 1)
    job_ms = _option(options, "job-timeout-ms", env("JOB_TIMEOUT_MS"), JOB_TIMEOUT_MS)
    load = env("LOAD_REPORTING_ENABLED", "LOAD_REPORTING")
    name = first_text(options.get("server-name"), env("SERVER_NAME"), hostname) or ""
    return Setup(
        gateway_base_url=(gateway or SETUP_GATEWAY).rstrip("/"),
        server_name=normalize_server_name(name),
        relay_mode="outbound",
        direct_base_url=None,
        heartbeat_interval_s=parse_positive_integer(env("HEARTBEAT_INTERVAL_SECONDS"), HEARTBEAT_S),
        request_timeout_ms=parse_positive_integer(env("REQUEST_TIMEOUT_MS"), REQUEST_TIMEOUT_MS),
        job_timeout_ms=job_ms,
        max_jobs=jobs,
        max_llm_jobs=_option(
            options, "max-concurrent-llm-jobs", env("MAX_CONCURRENT_LLM_JOBS"), jobs
        ),
        generic_enabled=_flag(
            options, "enable-generic-jobs", env("GENERIC_JOBS_ENABLED", "GENERIC_JOBS")
        ),
        generic_timeout_ms=_option(
            options, "generic-job-timeout-ms", env("GENERIC_JOB_TIMEOUT_MS"), job_ms
        ),
        max_generic_jobs=_option(
            options, "generic-job-max-concurrency", env("GENERIC_JOB_MAX_CONCURRENCY"), 1
        ),
        drain=_flag(options, "drain", env("DRAIN_MODE")),
        load_reporting=parse_boolean(
            False if options.get("disable-load-reporting") is True else load, True
        ),
        hardware=_flag(
            options,
            "enable-hardware-telemetry",
            env("HARDWARE_TELEMETRY_ENABLED", "HARDWARE_TELEMETRY"),
        ),
        exposure=_owner_exposure(options, env, environ),
    )


def _owner_exposure(options: Mapping[str, Any], env: _Env, environ: Mapping[str, str]) -> Exposure:
    return Exposure(
        setup_exposes_all(options, environ),
        parse_list(options.get("allow") or env("MODEL_ALLOWLIST")),
        parse_list(options.get("block") or env("MODEL_BLOCKLIST")),
    )


def bootstrap_body(setup: Setup, fingerprint: str, version: str) -> dict[str, Any]:
    """What the gateway is told of a new node, keys in the reference's order."""
    return {
        "machine_fingerprint": fingerprint,
        "server_name": setup.server_name,
        "label": setup.server_name,
        "relay_mode": setup.relay_mode,
        "direct_base_url": setup.direct_base_url,
        "node_version": version,
        "discovery_mode": "mcoda",
        "expose_all_models": setup.exposure.expose_all,
        "model_allowlist": list(setup.exposure.allow),
        "model_blocklist": list(setup.exposure.block),
        "heartbeat_interval_seconds": setup.heartbeat_interval_s,
        "max_concurrent_jobs": setup.max_jobs,
        "max_concurrent_llm_jobs": setup.max_llm_jobs,
        "drain_mode": setup.drain,
        "load_reporting_enabled": setup.load_reporting,
        "hardware_telemetry_enabled": setup.hardware,
        "generic_job_max_concurrency": setup.max_generic_jobs,
    }


@dataclass(frozen=True, slots=True)
class Enrolled:
    """What the gateway answered."""

    node_id: str
    runtime_token: str = field(repr=False)
    server_name: str | None = None
    relay_mode: str | None = None
    config_version: int | None = None
    heartbeat_interval_s: int | None = None
    heartbeat_timeout_s: int | None = None


def enrolled_from(answer: Mapping[str, Any], node_id: str | None = None) -> Enrolled:
    """From a bootstrap or enrol answer. Raises GatewayError when it cannot be used."""
    node = answer.get("node")
    facts = node if isinstance(node, Mapping) else {}
    known = first_text(facts.get("node_id"), node_id)
    token = optional_text(answer.get("runtime_token"))
    if known is None or token is None:
        missing = "node.node_id" if known is None else "runtime_token"
        raise GatewayError(f"the gateway answered without {missing}")
    if not is_plain_id(known):
        raise GatewayError("the gateway answered with a node.node_id that is no plain id")
    if not is_header_token(token):
        raise GatewayError("the gateway answered with a runtime_token that cannot be sent")
    version = answer.get("config_version")
    name = optional_text(facts.get("server_name"))
    mode = optional_text(facts.get("relay_mode"))
    return Enrolled(
        known,
        token,
        name if is_name(name) else None,
        mode if mode in {"outbound", "direct"} else None,
        version if isinstance(version, int) and is_number(version) else None,
        _seconds(answer.get("heartbeat_interval_seconds")),
        _seconds(answer.get("heartbeat_timeout_seconds")),
    )


def state_after(
    setup: Setup, enrolled: Enrolled, fingerprint: str | None, version: str, now: str
) -> State:
    """The state file after setup, keys in the reference's order; no secret is in it."""
    whole: State = {
        "node_id": enrolled.node_id,
        "server_name": enrolled.server_name or setup.server_name,
        "relay_mode": enrolled.relay_mode or setup.relay_mode,
        "machine_fingerprint": fingerprint,
        "direct_base_url": setup.direct_base_url,
        "config_version": enrolled.config_version,
        "heartbeat_interval_seconds": enrolled.heartbeat_interval_s or setup.heartbeat_interval_s,
        "heartbeat_timeout_seconds": enrolled.heartbeat_timeout_s,
        "enrolled_at": now,
        "updated_at": now,
        "gateway_base_url": setup.gateway_base_url,
        "discovery_mode": "mcoda",
        "node_version": version,
        "request_timeout_ms": setup.request_timeout_ms,
        "job_timeout_ms": setup.job_timeout_ms,
        "max_concurrent_jobs": setup.max_jobs,
        "max_concurrent_llm_jobs": setup.max_llm_jobs,
        "generic_jobs_enabled": setup.generic_enabled,
        "generic_job_timeout_ms": setup.generic_timeout_ms,
        "generic_job_max_concurrency": setup.max_generic_jobs,
        "capability_probe_timeout_ms": PROBE_TIMEOUT_MS,
        "drain_mode": setup.drain,
        "load_reporting_enabled": setup.load_reporting,
        "hardware_telemetry_enabled": setup.hardware,
        "expose_all_models": setup.exposure.expose_all,
        "exposure_policy": "all" if setup.exposure.expose_all else "none",
        "model_allowlist": list(setup.exposure.allow),
        "model_blocklist": list(setup.exposure.block),
    }
    optional = {"machine_fingerprint", "config_version", "heartbeat_timeout_seconds"}
    return {key: value for key, value in whole.items() if value is not None or key not in optional}


class _Env:
    """The reference's variables by their names without prefix; the first that is set counts."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def __call__(self, *names: str) -> str | None:
        values = (self._environ.get(f"{PREFIX}{name}") for name in names)
        return next((value for value in values if value is not None), None)


def _integer(state: Mapping[str, Any], key: str, fallback: int) -> int:
    return parse_positive_integer(state.get(key), fallback)


def _option(options: Mapping[str, Any], name: str, variable: str | None, fallback: int) -> int:
    return parse_positive_integer(options.get(name) or variable, fallback)


def _flag(options: Mapping[str, Any], name: str, variable: str | None) -> bool:
    return parse_boolean(options.get(name) or variable, False)


def _seconds(value: object) -> int | None:
    seconds = parse_positive_integer(value, 0)
    return min(seconds, LONGEST_INTERVAL_S) or None

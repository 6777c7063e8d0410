"""The settings of a gateway node: options, then environment, then state file, then default. Pure.

Names, defaults and the odd parsing are the reference's, so that its owners find what they know.
One difference: a word for the exposure policy that is not known is refused. Taking it for
"not set" would offer models that the owner meant to hide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from skulkd.swarm.catalog import Exposure
from skulkd.swarm.errors import ConfigError
from skulkd.swarm.js_values import (
    EXPOSURE_WORDS,
    first_text,
    normalize_server_name,
    optional_text,
    parse_boolean,
    parse_boolean_word,
    parse_exposure_policy,
    parse_list,
    parse_positive_integer,
    trim,
)

PREFIX = "MSWARM_SELF_HOSTED_"
POLICY_VARIABLE = f"{PREFIX}EXPOSURE_POLICY"
ALL_VARIABLE = f"{PREFIX}EXPOSE_ALL_MODELS"
GATEWAY_VARIABLE = "MSWARM_GATEWAY_BASE_URL"
DEFAULT_GATEWAY = "https://api.mswarm.org"

RelayMode = Literal["outbound", "direct"]
Options = Mapping[str, Any]
Environ = Mapping[str, str]
State = dict[str, Any]


_NUMBERS: Mapping[str, int | str] = {
    "heartbeat_interval_seconds": 30,
    "request_timeout_ms": 10_000,
    "job_timeout_ms": 3_600_000,
    "generic_job_timeout_ms": "job_timeout_ms",
    "max_concurrent_jobs": 1,
    "max_concurrent_llm_jobs": "max_concurrent_jobs",
    "generic_job_max_concurrency": 1,
}
"""Default by name; a text names the setting whose value is the default.

The name in upper case is the variable, with hyphens the option of a setup.
"""
_FLAGS = {
    "generic_jobs_enabled": "enable-generic-jobs",
    "drain_mode": "drain",
    "hardware_telemetry_enabled": "enable-hardware-telemetry",
}
"""Options of a setup that switch something on, which is off by default."""
_LOAD_REPORTING = "load_reporting_enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What an owner may set, at setup and afterwards. Names are those of the state file."""

    gateway_base_url: str
    server_name: str
    relay_mode: RelayMode = "outbound"
    heartbeat_interval_seconds: int = 30
    request_timeout_ms: int = 10_000
    job_timeout_ms: int = 3_600_000
    generic_job_timeout_ms: int = 3_600_000
    max_concurrent_jobs: int = 1
    max_concurrent_llm_jobs: int = 1
    generic_jobs_enabled: bool = False
    generic_job_max_concurrency: int = 1
    drain_mode: bool = False
    load_reporting_enabled: bool = True
    hardware_telemetry_enabled: bool = False
    exposure: Exposure = field(default_factory=Exposure)

    @property
    def llm_slots(self) -> int:
        return max(1, math.floor(self.max_concurrent_llm_jobs or self.max_concurrent_jobs or 1))

    @property
    def generic_slots(self) -> int:
        return max(1, math.floor(self.generic_job_max_concurrency or 1))

    @property
    def slots(self) -> int:
        """For jobs of all classes together."""
        generic = self.generic_slots if self.generic_jobs_enabled else 1
        return max(1, math.floor(self.max_concurrent_jobs or 1), self.llm_slots, generic)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig(NodeSettings):
    """A gateway node as it is to run."""

    node_id: str
    enrollment_token: str | None = field(default=None, repr=False)
    runtime_token: str | None = field(default=None, repr=False)


def node_config(environ: Environ, state: Mapping[str, Any]) -> NodeConfig | None:
    """How to run; None while neither environment nor state know a node id.

    Raises ConfigError.
    """
    node_id = first_text(_variable(environ, "NODE_ID"), state.get("node_id"))
    if node_id is None:
        return None
    relay = first_text(_variable(environ, "RELAY_MODE"), state.get("relay_mode"))
    name = first_text(_variable(environ, "SERVER_NAME"), state.get("server_name"))
    exposure = Exposure(
        _node_exposes_all(environ, state),
        parse_list(_variable(environ, "MODEL_ALLOWLIST") or state.get("model_allowlist")),
        parse_list(_variable(environ, "MODEL_BLOCKLIST") or state.get("model_blocklist")),
    )
    return NodeConfig(
        gateway_base_url=_gateway(environ.get(GATEWAY_VARIABLE), state.get("gateway_base_url")),
        node_id=node_id,
        server_name=name or "local-node",
        relay_mode="direct" if relay == "direct" else "outbound",
        exposure=exposure,
        enrollment_token=optional_text(_variable(environ, "ENROLLMENT_TOKEN")),
        runtime_token=optional_text(_variable(environ, "RUNTIME_TOKEN")),
        **_numbers_and_flags({}, environ, state),
    )


def setup_config(options: Options, environ: Environ, hostname: str) -> NodeSettings:
    """The settings of a new node. Options have the reference's names (`max-concurrent-jobs`).

    Raises ConfigError.
    """
    mode = first_text(options.get("mode"), _variable(environ, "RELAY_MODE")) or "outbound"
    if mode != "outbound":
        raise ConfigError(
            f"mode {mode} is not offered here: a skulk node asks the gateway for work (outbound)"
            " and opens no port for it"
        )
    name = first_text(options.get("server-name"), _variable(environ, "SERVER_NAME"), hostname)
    exposure = Exposure(
        _setup_exposes_all(options, environ),
        parse_list(options.get("allow") or _variable(environ, "MODEL_ALLOWLIST")),
        parse_list(options.get("block") or _variable(environ, "MODEL_BLOCKLIST")),
    )
    return NodeSettings(
        gateway_base_url=_gateway(options.get("gateway"), environ.get(GATEWAY_VARIABLE)),
        server_name=normalize_server_name(name or ""),
        exposure=exposure,
        **_numbers_and_flags(options, environ, {}),
    )


def _gateway(*candidates: object) -> str:
    return (first_text(*candidates) or DEFAULT_GATEWAY).rstrip("/")


def _numbers_and_flags(options: Options, environ: Environ, state: Mapping[str, Any]) -> State:
    found: State = {}
    for name, default in _NUMBERS.items():
        given = options.get(name.replace("_", "-")) or _variable(environ, name.upper())
        fallback = found[default] if isinstance(default, str) else default
        found[name] = parse_positive_integer(
            given, parse_positive_integer(state.get(name), fallback)
        )
    for name, option in _FLAGS.items():
        given = options.get(option) or _flag_variable(environ, name)
        found[name] = parse_boolean(given, state.get(name) is True)
    off = options.get("disable-load-reporting") is True
    given = False if off else _flag_variable(environ, _LOAD_REPORTING)
    found[_LOAD_REPORTING] = parse_boolean(given, state.get(_LOAD_REPORTING) is not False)
    return found


def _flag_variable(environ: Environ, name: str) -> str | None:
    """`GENERIC_JOBS_ENABLED` or `GENERIC_JOBS`."""
    return _variable(environ, name.upper(), name.removesuffix("_enabled").upper())


def _variable(environ: Environ, *names: str) -> str | None:
    """The reference's variables by their names without prefix; the first that is set counts."""
    values = (environ.get(f"{PREFIX}{name}") for name in names)
    return next((value for value in values if value is not None), None)


# Whether all models are offered


def _node_exposes_all(environ: Environ, state: Mapping[str, Any]) -> bool:
    """For a running node: the variable's policy, else the stored one, else all.

    `EXPOSE_ALL_MODELS` and the stored flag can only say "all", which is the default anyway.
    Raises ConfigError for words that are not known.
    """
    _exposure_flag(environ.get(ALL_VARIABLE), ALL_VARIABLE)
    variable = _exposure_policy(environ.get(POLICY_VARIABLE), POLICY_VARIABLE)
    stored = _exposure_policy(state.get("exposure_policy"), "exposure_policy in config.json")
    return (variable or stored or "all") == "all"


def _setup_exposes_all(options: Options, environ: Environ) -> bool:
    """For a node that is set up: options, then variables, then all. Raises ConfigError."""
    hide = _exposure_flag(options.get("no-expose-all"), "no-expose-all")
    option = _exposure_policy(options.get("exposure-policy"), "exposure-policy")
    expose = _exposure_flag(options.get("expose-all"), "expose-all")
    variable = _exposure_policy(environ.get(POLICY_VARIABLE), POLICY_VARIABLE)
    flag = _exposure_flag(environ.get(ALL_VARIABLE), ALL_VARIABLE)
    if hide:
        return False
    if option is not None:
        return option == "all"
    if expose is not None:
        return expose
    if variable is not None:
        return variable == "all"
    return flag is not False


def _exposure_policy(value: object, name: str) -> str | None:
    if _is_blank(value):
        return None
    policy = parse_exposure_policy(value)
    if policy is None:
        raise ConfigError(f"{name} is {value!r:.100}, must be one of {', '.join(EXPOSURE_WORDS)}")
    return policy


def _exposure_flag(value: object, name: str) -> bool | None:
    if _is_blank(value):
        return None
    flag = value if isinstance(value, bool) else parse_boolean_word(value)
    if flag is None:
        raise ConfigError(f"{name} is {value!r:.100}, must be one of 1, true, yes, 0, false, no")
    return flag


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not trim(value))

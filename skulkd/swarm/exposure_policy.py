"""Whether all models are offered to the gateway: the words for it and who wins. Pure.

Words and precedence are the reference's, except that a word it does not know is refused: taking
it for "not set" would offer models that the owner meant to hide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skulkd.swarm.errors import ConfigError
from skulkd.swarm.script_values import (
    EXPOSURE_WORDS,
    parse_boolean_word,
    parse_exposure_policy,
    trim,
)

PREFIX = "MSWARM_SELF_HOSTED_"
POLICY_VARIABLE = f"{PREFIX}EXPOSURE_POLICY"
ALL_VARIABLE = f"{PREFIX}EXPOSE_ALL_MODELS"


def daemon_exposes_all(environ: Mapping[str, str], state: Mapping[str, Any]) -> bool:
    """For a running node: the variable's policy, else the stored one, else all.

    `EXPOSE_ALL_MODELS` and the stored flag can only say "all", which is the default anyway.
    Raises ConfigError for words that are not known.
    """
    _flag(environ.get(ALL_VARIABLE), ALL_VARIABLE)
    variable = _policy(environ.get(POLICY_VARIABLE), POLICY_VARIABLE)
    stored = _policy(state.get("exposure_policy"), "exposure_policy in config.json")
    return (variable or stored or "all") == "all"


def setup_exposes_all(options: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """For a node that is set up: options, then variables, then all. Raises ConfigError."""
    hide = _flag(options.get("no-expose-all"), "no-expose-all")
    option = _policy(options.get("exposure-policy"), "exposure-policy")
    expose = _flag(options.get("expose-all"), "expose-all")
    variable = _policy(environ.get(POLICY_VARIABLE), POLICY_VARIABLE)
    flag = _flag(environ.get(ALL_VARIABLE), ALL_VARIABLE)
    if hide:
        return False
    if option is not None:
        return option == "all"
    if expose is not None:
        return expose
    if variable is not None:
        return variable == "all"
    return flag is not False


def _policy(value: object, name: str) -> str | None:
    if _is_blank(value):
        return None
    policy = parse_exposure_policy(value)
    if policy is None:
        raise ConfigError(f"{name} is {value!r:.100}, must be one of {', '.join(EXPOSURE_WORDS)}")
    return policy


def _flag(value: object, name: str) -> bool | None:
    if _is_blank(value):
        return None
    flag = value if isinstance(value, bool) else parse_boolean_word(value)
    if flag is None:
        raise ConfigError(f"{name} is {value!r:.100}, must be one of 1, true, yes, 0, false, no")
    return flag


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not trim(value))

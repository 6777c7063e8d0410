"""Which models the gateway gets: words and precedence, against a second reading of the rules."""

from __future__ import annotations

import random
from typing import Any

import pytest

from skulkd.swarm.errors import ConfigError
from skulkd.swarm.node_config import node_config, setup_config

POLICY = "MSWARM_SELF_HOSTED_EXPOSURE_POLICY"
FLAG = "MSWARM_SELF_HOSTED_EXPOSE_ALL_MODELS"
SHOW = ["all", "expose-all", "expose_all", "exposed", "true", "1", "yes", " ALL ", "Expose_All"]
HIDE = ["none", "off", "disabled", "false", "0", "no", "OFF", " None\t"]
UNKNOWN = ["maybe", "on", "hidden", "al l", "-1", "nothing"]
YES, NO = ["true", "1", "yes", " TRUE "], ["false", "0", "no", "No"]
RUNS = 4000


class Unknown(Exception):
    """A word that is refused."""


def meaning(word: str | None) -> bool | None:
    """Written from the rules, not from the code: True shows all, False none, None is not set."""
    if word is None or not word.strip():
        return None
    if word in SHOW:
        return True
    if word in HIDE:
        return False
    raise Unknown(word)


def switch(word: str | None) -> bool | None:
    if word is None or not word.strip():
        return None
    if word in YES or word in NO:
        return word in YES
    raise Unknown(word)


def daemon_oracle(env: dict[str, str], state: dict[str, Any]) -> bool:
    switch(env.get(FLAG))
    told = [meaning(env.get(POLICY)), meaning(state.get("exposure_policy"))]
    # Both flags can only say yes, and yes is what holds without them.
    return next((answer for answer in told if answer is not None), True)


def setup_oracle(options: dict[str, Any], env: dict[str, str]) -> bool:
    ranked = [
        False if options.get("no-expose-all") else None,
        meaning(options.get("exposure-policy")),
        True if options.get("expose-all") else None,
        meaning(env.get(POLICY)),
        switch(env.get(FLAG)),
    ]
    return next((answer for answer in ranked if answer is not None), True)


def random_environ(dice: random.Random) -> dict[str, str]:
    env = {}
    if dice.random() < 0.6:
        env[POLICY] = dice.choice([*SHOW, *HIDE, *HIDE, "", " ", dice.choice(UNKNOWN)])
    if dice.random() < 0.6:
        env[FLAG] = dice.choice([*YES, *NO, "", dice.choice(UNKNOWN)])
    return env


def outcome(rule: Any, *given: Any) -> bool | str:
    try:
        return bool(rule(*given))
    except (Unknown, ConfigError):
        return "refused"


def test_a_running_node_agrees_with_the_rules_in_thousands_of_set_ups() -> None:
    dice, seen = random.Random(79), set[object]()
    for _ in range(RUNS):
        env = random_environ(dice)
        state: dict[str, Any] = {"node_id": "shn_1", "gateway_base_url": "https://gw.example"}
        if dice.random() < 0.6:
            words = [*SHOW, *HIDE, *HIDE, "", None, dice.choice(UNKNOWN)]
            state["exposure_policy"] = dice.choice(words)
        if dice.random() < 0.6:
            state["expose_all_models"] = dice.choice([True, False])

        def found(env: dict[str, str], state: dict[str, Any]) -> bool:
            config = node_config(env, state)
            assert config is not None
            return config.exposure.expose_all

        expected = outcome(daemon_oracle, env, state)
        assert outcome(found, env, state) == expected, (env, state)
        seen.add(expected)
    assert seen == {True, False, "refused"}


def test_set_up_agrees_with_the_rules_in_thousands_of_set_ups() -> None:
    dice, seen = random.Random(128), set[object]()
    for _ in range(RUNS):
        env = random_environ(dice)
        options: dict[str, Any] = {}
        for name in ("no-expose-all", "expose-all"):
            if dice.random() < 0.3:
                options[name] = dice.choice([True, "true", "yes"])
        if dice.random() < 0.5:
            options["exposure-policy"] = dice.choice([*SHOW, *HIDE, "", dice.choice(UNKNOWN)])

        def found(options: dict[str, Any], env: dict[str, str]) -> bool:
            return setup_config(options, env, "host").exposure.expose_all

        # An unknown word is refused wherever it stands, also where another one wins.
        try:
            meaning(options.get("exposure-policy"))
            meaning(env.get(POLICY))
            switch(env.get(FLAG))
            expected: bool | str = setup_oracle(options, env)
        except Unknown:
            expected = "refused"
        assert outcome(found, options, env) == expected, (options, env)
        seen.add(expected)
    assert seen == {True, False, "refused"}


def test_off_hides_everything_and_an_unknown_word_is_named() -> None:
    state = {"node_id": "shn_1", "exposure_policy": "off"}
    config = node_config({FLAG: "true"}, state)
    assert config is not None
    assert not config.exposure.expose_all
    with pytest.raises(ConfigError, match=r"exposure-policy is 'offf', must be one of all, "):
        setup_config({"exposure-policy": "offf"}, {}, "host")
    with pytest.raises(ConfigError, match=POLICY):
        node_config({POLICY: "hide"}, state)
    with pytest.raises(ConfigError, match=r"config\.json"):
        node_config({}, {**state, "exposure_policy": "some"})
    with pytest.raises(ConfigError, match="no-expose-all"):
        setup_config({"no-expose-all": "surely"}, {}, "host")

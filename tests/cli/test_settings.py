"""Settings as rows, and one change to them, planned without a daemon."""

from __future__ import annotations

import pytest

from skulkctl.errors import NotFound, Refused
from skulkctl.settings.change import Change, is_secret, plan_set, plan_unset
from skulkctl.settings.rows import answering_node, decided_elsewhere, setting_items
from skulkd.wire.config_api import ConfigAnswer, ConfigSetting, EffectiveConfig

CONFIG = {
    "model_store": {
        "store_host": "kite1",
        "store_path": "/srv/store",
        "staging": {"staging_keep_recent_gb": 40},
    },
    "tracing": {"retention_days": 3},
}


def test_setting_a_value_keeps_every_other_section() -> None:
    change = plan_set(CONFIG, "tracing.retention_days", "7")
    assert change.line() == "tracing.retention_days: 3 -> 7"
    assert change.body == {**CONFIG, "tracing": {"retention_days": 7}}
    assert CONFIG["tracing"] == {"retention_days": 3}


@pytest.mark.parametrize(
    ("key", "typed", "value"),
    [
        ("logging.enabled", "on", True),
        ("model_store.staging.staging_keep_recent_gb", "2.5", 2.5),
        ("connectivity.tailscale.bootstrap_peers", "/ip4/10.0.0.1/tcp/1", ["/ip4/10.0.0.1/tcp/1"]),
        ("inference.kv_cache_backend", "turboquant", "turboquant"),
    ],
)
def test_a_value_is_read_by_the_type_of_its_key(key: str, typed: str, value: object) -> None:
    assert plan_set(CONFIG, key, typed).new == value


@pytest.mark.parametrize(
    ("key", "typed"),
    [
        ("logging.enabled", "perhaps"),
        ("model_store.staging.staging_keep_recent_gb", "-1"),
        ("inference.kv_cache_backend", "fast"),
        ("model_store.staging", "x"),
    ],
)
def test_a_value_that_cannot_be_is_refused_before_anything_is_sent(key: str, typed: str) -> None:
    with pytest.raises(Refused) as raised:
        plan_set(CONFIG, key, typed)
    assert key in " ".join(raised.value.why)


def test_an_unknown_key_is_not_found_and_the_nearest_is_named() -> None:
    with pytest.raises(NotFound) as raised:
        is_secret("tracing.retention_day")
    assert "did you mean retention_days?" in " ".join(raised.value.why)


def test_removing_the_last_value_of_a_section_sends_null_so_that_the_daemon_drops_it() -> None:
    change = plan_unset(CONFIG, "tracing.retention_days")
    assert change.body["tracing"] is None
    assert change.body["model_store"] == CONFIG["model_store"]
    assert change.line() == "tracing.retention_days: 3 -> -"


def test_removing_one_of_several_values_keeps_the_section() -> None:
    change = plan_unset(CONFIG, "model_store.staging.staging_keep_recent_gb")
    assert change.body["model_store"] == {
        "store_host": "kite1",
        "store_path": "/srv/store",
        "staging": {},
    }


def test_removing_a_required_value_is_refused() -> None:
    with pytest.raises(Refused, match=r"cannot set model_store\.store_host"):
        plan_unset(CONFIG, "model_store.store_host")


def test_removing_a_secret_sends_null_because_what_is_left_out_is_kept() -> None:
    assert plan_unset({}, "hf_token").body == {"hf_token": None}
    assert plan_unset({"cluster": {"namespace": "x"}}, "cluster.secret").body == {
        "cluster": {"namespace": "x", "secret": None}
    }


def test_a_secret_is_shown_in_no_form() -> None:
    change = plan_set({}, "hf_token", "hf_0123456789abcdef")
    assert isinstance(change, Change)
    assert change.line() == "hf_token: (hidden) -> (hidden)"
    assert change.document()["new"] is None
    assert change.body["hf_token"] == "hf_0123456789abcdef"


def an_answer(*settings: ConfigSetting) -> ConfigAnswer:
    return ConfigAnswer(
        config=CONFIG,
        config_path="skulk.yaml",
        file_exists=True,
        effective=EffectiveConfig(kv_cache_backend="default", has_hf_token=True),
        settings=list(settings) or None,
    )


def test_settings_show_their_origin_and_hide_secrets() -> None:
    answer = an_answer(
        ConfigSetting(key="api.listen", value="0.0.0.0:1", origin="--listen"),
        ConfigSetting(key="hf_token", value=None, origin="skulk.yaml:3"),
        ConfigSetting(key="cluster.secret", value=None, origin="default"),
        ConfigSetting(key="node.name", value="kite1", in_force="kite7", origin="SKULK_NODE_NAME"),
    )
    items = setting_items(answer, frozenset({"hf_token", "cluster.secret"}))
    assert [item["value"] for item in items] == ["0.0.0.0:1", "(hidden)", None, "kite7"]
    assert items[3]["pending"] == {"value": "kite1", "origin": "SKULK_NODE_NAME"}
    assert [decided_elsewhere(answer, item["key"]) for item in items] == [
        "--listen", None, None, "SKULK_NODE_NAME",
    ]  # fmt: skip
    assert answering_node(answer) == "kite7"


def test_without_origins_the_values_of_the_file_are_shown() -> None:
    answer = an_answer()
    shown = {item["key"]: item["value"] for item in setting_items(answer, frozenset())}
    assert shown == {
        "model_store.store_host": "kite1",
        "model_store.store_path": "/srv/store",
        "model_store.staging.staging_keep_recent_gb": 40,
        "tracing.retention_days": 3,
        "hf_token": "(hidden)",
    }
    assert answering_node(answer) == "NODE"

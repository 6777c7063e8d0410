"""Names of machines, and which override holds for which node."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkd.settings.check import check_raw
from skulkd.settings.overrides import effective_staging, host_aliases, is_store_host, same_host
from skulkd.wire.config import SkulkConfig, StagingSection


def _config(overrides: dict[str, Any], **staging: Any) -> SkulkConfig:
    store = {"store_host": "kite1", "store_path": "/s", "staging": staging}
    return check_raw({"model_store": {**store, "node_overrides": overrides}})


@pytest.mark.parametrize(
    ("host", "aliases"),
    [
        ("Kite3.lan.", {"kite3.lan", "kite3", "kite3.local"}),
        ("kite3", {"kite3", "kite3.local"}),
        (" KITE3.local.. ", {"kite3.local", "kite3"}),
        ("", set()),
        (" . ", set()),
        ("10.0.0.7", {"10.0.0.7"}),
        ("fe80::1", {"fe80::1"}),
    ],
)
def test_host_goes_by_its_full_short_and_local_name(host: str, aliases: set[str]) -> None:
    assert host_aliases(host) == aliases


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("kite3.local", "kite3.lan", True),
        ("kite3.lan", "kite3", True),
        ("KITE3", "kite3.", True),
        ("kite3.lan", "kite3.office", False),
        ("kite3", "kite33", False),
        ("10.0.0.7", "10", False),
        ("", "", False),
    ],
)
def test_names_match_both_ways_or_not_at_all(one: str, other: str, same: bool) -> None:
    assert same_host(one, other) is same
    assert same_host(other, one) is same


@given(st.text("abK.", max_size=8), st.text("abK.", max_size=8))
def test_matching_never_depends_on_the_side(one: str, other: str) -> None:
    assert same_host(one, other) == same_host(other, one)


@pytest.mark.parametrize(
    ("store_host", "is_host"),
    [("node-1", True), ("NODE-1", False), ("Big Kite", True), ("kite1.lan", True), ("k", False)],
)
def test_store_host_is_known_by_id_name_or_host_name(store_host: str, is_host: bool) -> None:
    config = check_raw({"model_store": {"store_host": store_host, "store_path": "/s"}})
    assert is_store_host(config, "node-1", "big kite", "kite1") is is_host


def test_no_store_means_no_store_host_and_no_staging() -> None:
    assert is_store_host(SkulkConfig(), "n", "n", "n") is False
    assert effective_staging(SkulkConfig(), "n", "n", "n") is None


BY_HOST = {"staging": {"staging_keep_recent_gb": 1}}
BY_FULL_HOST = {"staging": {"staging_keep_recent_gb": 2}}
BY_NAME = {"staging": {"staging_keep_recent_gb": 3}}
BY_ID = {"staging": {"staging_keep_recent_gb": 4}}


@pytest.mark.parametrize(
    ("overrides", "kept"),
    [
        ({}, 40),
        ({"other": BY_ID}, 40),
        ({"KITE3": BY_HOST}, 1),
        ({"kite3": BY_HOST, "kite3.lan": BY_FULL_HOST}, 2),
        ({"kite3": BY_HOST, "kite3.lan": BY_FULL_HOST, "Blue": BY_NAME}, 3),
        ({"kite3": BY_HOST, "Blue": BY_NAME, "node-7": BY_ID}, 4),
        ({"node-7": BY_ID, "Blue": BY_NAME, "kite3": BY_HOST}, 4),
        ({"node-7": {}, "blue": {"staging": None}, "kite3": BY_HOST}, 1),
    ],
)
def test_most_specific_override_wins_in_any_order(overrides: dict[str, Any], kept: int) -> None:
    staging = effective_staging(_config(overrides), "node-7", "blue", "kite3.lan")
    assert staging is not None
    assert staging.staging_keep_recent_gb == kept


def test_override_replaces_only_what_it_names() -> None:
    overrides = {"kite3": {"staging": {"cleanup_on_deactivate": False}}}
    config = _config(overrides, staging_keep_recent_gb=10, node_cache_path="/n")
    assert effective_staging(config, "node-7", "blue", "kite3.lan") == StagingSection(
        enabled=True,
        node_cache_path="/n",
        cleanup_on_deactivate=False,
        staging_keep_recent_gb=10.0,
    )

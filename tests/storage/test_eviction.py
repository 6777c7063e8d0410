"""Eviction as arithmetic: never below the budget, never what is in use, the newest kept."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from skulkd.store.config import StoreConfig
from skulkd.store.retention import plan_eviction
from skulkd.store.staging.area import StagedModel, StagingArea
from skulkd.wire.config import StagingSection

# How long an example takes says nothing here, and a busy machine must not fail it.
unhurried = settings(deadline=None)
names = st.integers(0, 40).map(lambda number: f"org--m{number}")


def copy_of(name: str, size_bytes: int, last_used: float) -> StagedModel:
    return StagedModel(name, Path(name), size_bytes, last_used, complete=True)


copies = st.lists(
    st.builds(copy_of, name=names, size_bytes=st.integers(0, 100), last_used=st.floats(0, 1e9)),
    unique_by=lambda copy: copy.name,
    max_size=12,
)
used = st.sets(names, max_size=6)
budgets = st.integers(0, 400)


@unhurried
@given(copies, used, budgets)
def test_every_copy_has_exactly_one_fate(
    all_: list[StagedModel], in_use: set[str], budget: int
) -> None:
    plan = plan_eviction(all_, in_use, budget)
    assert sorted(plan.evict + plan.keep + plan.in_use, key=str) == sorted(all_, key=str)


@unhurried
@given(copies, used, budgets)
def test_nothing_in_use_is_evicted_or_counted(
    all_: list[StagedModel], in_use: set[str], budget: int
) -> None:
    plan = plan_eviction(all_, in_use, budget)
    assert not in_use.intersection(copy.name for copy in plan.evict)
    others = [copy for copy in all_ if copy.name not in in_use]
    assert plan_eviction(others, set(), budget).evict == plan.evict


@unhurried
@given(copies, used, budgets)
def test_it_never_leaves_less_than_the_budget(
    all_: list[StagedModel], in_use: set[str], budget: int
) -> None:
    plan = plan_eviction(all_, in_use, budget)
    before = sum(copy.size_bytes for copy in all_ if copy.name not in in_use)
    kept_bytes = sum(copy.size_bytes for copy in plan.keep)
    assert kept_bytes >= min(budget, before)
    assert kept_bytes + plan.evicted_bytes == before


@unhurried
@given(copies, used, budgets)
def test_what_stays_is_newer_and_no_more_than_needed(
    all_: list[StagedModel], in_use: set[str], budget: int
) -> None:
    plan = plan_eviction(all_, in_use, budget)
    ordered = plan.keep + plan.evict
    assert list(ordered) == sorted(ordered, key=lambda copy: (-copy.last_used, copy.name))
    if plan.evict:
        assert sum(copy.size_bytes for copy in plan.keep[:-1]) < max(budget, 1)


@unhurried
@given(copies, used, budgets, st.integers(0, 100))
def test_a_larger_budget_never_evicts_more(
    all_: list[StagedModel], in_use: set[str], budget: int, more: int
) -> None:
    small, large = (plan_eviction(all_, in_use, size) for size in (budget, budget + more))
    assert set(large.evict) <= set(small.evict)


@unhurried
@given(copies, used)
def test_no_budget_keeps_everything_and_zero_keeps_only_what_is_used(
    all_: list[StagedModel], in_use: set[str]
) -> None:
    assert not plan_eviction(all_, in_use, None).evict
    assert not plan_eviction(all_, in_use, 0).keep


def test_the_newest_stays_even_when_it_is_larger_than_the_budget() -> None:
    all_ = [copy_of("old", 10, 1.0), copy_of("huge", 60, 2.0)]
    plan = plan_eviction(all_, (), 40)
    assert [copy.name for copy in plan.keep] == ["huge"]
    assert [copy.name for copy in plan.evict] == ["old"]


def test_an_exact_fit_ends_the_budget() -> None:
    all_ = [copy_of("a", 20, 3.0), copy_of("b", 20, 2.0), copy_of("c", 20, 1.0)]
    assert [copy.name for copy in plan_eviction(all_, (), 40).evict] == ["c"]


def test_the_budget_counts_gib() -> None:
    staging = StagingSection(staging_keep_recent_gb=0.5)
    config = StoreConfig(Path("models"), staging=staging, area=StagingArea(Path("staging")))
    assert config.keep_recent_bytes == 1024**3 // 2

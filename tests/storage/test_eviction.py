"""Eviction as arithmetic: never below the budget, never what is in use, the newest kept."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from skulkd.store.eviction import GIB, Copy, budget_of, newest_first, plan_eviction

# How long an example takes says nothing here, and a busy machine must not fail it.
unhurried = settings(deadline=None)
names = st.integers(0, 40).map(lambda number: f"org--m{number}")
copies = st.lists(
    st.builds(Copy, name=names, size_bytes=st.integers(0, 100), last_used=st.floats(0, 1e9)),
    unique_by=lambda copy: copy.name,
    max_size=12,
)
used = st.sets(names, max_size=6)
budgets = st.integers(0, 400)


@unhurried
@given(copies, used, budgets)
def test_every_copy_has_exactly_one_fate(all_: list[Copy], in_use: set[str], budget: int) -> None:
    plan = plan_eviction(all_, in_use, budget)
    assert sorted(plan.evict + plan.keep + plan.in_use, key=str) == sorted(all_, key=str)


@unhurried
@given(copies, used, budgets)
def test_nothing_in_use_is_evicted_or_counted(
    all_: list[Copy], in_use: set[str], budget: int
) -> None:
    plan = plan_eviction(all_, in_use, budget)
    assert not in_use.intersection(copy.name for copy in plan.evict)
    others = [copy for copy in all_ if copy.name not in in_use]
    assert plan_eviction(others, set(), budget).evict == plan.evict


@unhurried
@given(copies, used, budgets)
def test_it_never_leaves_less_than_the_budget(
    all_: list[Copy], in_use: set[str], budget: int
) -> None:
    plan = plan_eviction(all_, in_use, budget)
    before = sum(copy.size_bytes for copy in all_ if copy.name not in in_use)
    assert plan.kept_bytes >= min(budget, before)
    assert plan.kept_bytes + plan.evicted_bytes == before


@unhurried
@given(copies, used, budgets)
def test_what_stays_is_newer_and_no_more_than_needed(
    all_: list[Copy], in_use: set[str], budget: int
) -> None:
    plan = plan_eviction(all_, in_use, budget)
    order = newest_first(plan.keep + plan.evict)
    assert tuple(order) == plan.keep + plan.evict
    if plan.evict:
        assert sum(copy.size_bytes for copy in plan.keep[:-1]) < max(budget, 1)


@unhurried
@given(copies, used, budgets, st.integers(0, 100))
def test_a_larger_budget_never_evicts_more(
    all_: list[Copy], in_use: set[str], budget: int, more: int
) -> None:
    small, large = (plan_eviction(all_, in_use, size) for size in (budget, budget + more))
    assert set(large.evict) <= set(small.evict)


@unhurried
@given(copies, used)
def test_no_budget_keeps_everything_and_zero_keeps_only_what_is_used(
    all_: list[Copy], in_use: set[str]
) -> None:
    assert not plan_eviction(all_, in_use, None).evict
    assert not plan_eviction(all_, in_use, 0).keep


def test_the_newest_stays_even_when_it_is_larger_than_the_budget() -> None:
    all_ = [Copy("old", 10, 1.0), Copy("huge", 60, 2.0)]
    plan = plan_eviction(all_, (), 40)
    assert [copy.name for copy in plan.keep] == ["huge"]
    assert [copy.name for copy in plan.evict] == ["old"]


def test_an_exact_fit_ends_the_budget() -> None:
    all_ = [Copy("a", 20, 3.0), Copy("b", 20, 2.0), Copy("c", 20, 1.0)]
    assert [copy.name for copy in plan_eviction(all_, (), 40).evict] == ["c"]


def test_the_budget_counts_gib() -> None:
    assert budget_of(40) == 40 * GIB == 42_949_672_960
    assert budget_of(0.5) == GIB // 2

"""Access tokens in the journal, on disk, and where two histories meet."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkd.cluster import tokens as table_module
from skulkd.cluster.codec import dump, load_as
from skulkd.cluster.disk import RecordFile, applied, difference
from skulkd.cluster.messages import ClusterRecord
from skulkd.cluster.tokens import TokenTable
from skulkd.wire.events import Event, TokenCreated, TokenRevoked
from skulkd.wire.ids import TokenId
from skulkd.wire.tokens import AccessToken
from tests.cluster.simulation import Simulation

MADE = datetime(2026, 1, 2, tzinfo=UTC)
IDS = [TokenId(f"{number:012x}") for number in range(4)]


def a_token(token_id: str, name: str = "ci") -> AccessToken:
    return AccessToken(
        token_id=TokenId(token_id), name=name, scopes=["read"], created=MADE, digest=f"d{token_id}"
    )


def created(token_id: str, name: str = "ci") -> Event:
    return TokenCreated(token=a_token(token_id, name))


def revoked(token_id: str) -> Event:
    return TokenRevoked(token_id=TokenId(token_id), name="ci")


def table(events: Iterable[Event]) -> TokenTable:
    made = TokenTable()
    for event in events:
        made.apply(event)
    return made


def content(of: TokenTable) -> tuple[set[TokenId], set[TokenId]]:
    return set(of.tokens), set(of.revoked())


EVENTS = st.lists(
    st.sampled_from([make(one) for one in IDS for make in (created, revoked)]), max_size=8
)


@given(EVENTS, st.randoms(use_true_random=False))
def test_the_order_of_events_does_not_matter(events: list[Event], chance: Random) -> None:
    other = list(events)
    chance.shuffle(other)
    assert content(table(events)) == content(table(other))


@given(EVENTS, EVENTS)
def test_two_histories_are_united_and_what_one_revoked_stays_revoked(
    ours: list[Event], theirs: list[Event]
) -> None:
    here, there = table(ours), table(theirs)
    for event in here.missing_events(there.all(), there.revoked()):
        here.apply(event)
    assert content(here) == content(table([*ours, *theirs]))
    assert here.missing_events(there.all(), there.revoked()) == []
    assert all(here.tokens[key].digest == f"d{key}" for key in here.tokens)


@given(st.lists(EVENTS, max_size=5))
def test_the_disk_holds_what_the_table_holds(steps: Sequence[list[Event]]) -> None:
    held, on_disk = TokenTable(), ClusterRecord("l", 1, -1)
    for index, events in enumerate(steps):
        for event in events:
            held.apply(event)
        now = ClusterRecord("l", 1, index, tokens=held.all(), revoked_tokens=held.revoked())
        on_disk = applied(on_disk, load_as(type(step := difference(on_disk, now)), dump(step)))
        found = {one.token_id for one in on_disk.tokens}, set(on_disk.revoked_tokens)
        assert found == content(held)


def test_old_revocations_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "REVOKED", 2)
    assert table(map(revoked, IDS)).revoked() == tuple(IDS[2:])


def test_a_branch_changes_nothing() -> None:
    held = table([created(IDS[0])])
    version, branch = held.version, held.copy()
    branch.apply(revoked(IDS[0]))
    assert (set(held.tokens), held.version) == ({IDS[0]}, version)


def test_the_digest_is_for_other_nodes_and_the_disk_only(tmp_path: Path) -> None:
    event = created(IDS[0])
    assert "digest" not in event.model_dump_json()
    assert "digest" not in repr(event)
    file = RecordFile(tmp_path / "placements.json")
    file.save(ClusterRecord("l", 1, 0, tokens=(a_token(IDS[0]),)))
    loaded = file.load()
    assert loaded is not None
    assert loaded.tokens[0].digest == f"d{IDS[0]}"
    assert all(one.stat().st_mode & 0o077 == 0 for one in tmp_path.iterdir())


def everywhere(sim: Simulation) -> set[str]:
    """The names that every node has; fails when they differ."""
    found = {frozenset(one.name for one in node.core.tokens.all()) for node in sim.nodes.values()}
    assert len(found) == 1, found
    return set(next(iter(found)))


def test_both_sides_of_a_split_keep_their_tokens_and_their_revocations() -> None:
    sim = Simulation()
    for name in "abcd":
        sim.start(name)
    sim.run(4)
    for token_id, name in zip(IDS, ("old", "left", "right", "dropped"), strict=True):
        if name in ("old", "dropped"):
            sim.append("a", created(token_id, name))
    sim.run(1)
    assert everywhere(sim) == {"old", "dropped"}
    sim.cut("ab")
    sim.run(8)
    sim.append("a", created(IDS[1], "left"))
    sim.append("c", created(IDS[2], "right"))
    sim.append("d", revoked(IDS[3]))
    sim.run(1)
    assert {one.name for one in sim.nodes[next(iter(sim.nodes))].core.tokens.all()} >= {"dropped"}
    sim.heal()
    sim.run(8)
    sim.assert_one_cluster()
    assert everywhere(sim) == {"old", "left", "right"}


@pytest.mark.parametrize("order", list(itertools.permutations("ab")))
def test_a_cold_start_unites_what_the_disks_hold(order: tuple[str, ...]) -> None:
    """Also when the disk that leads is the one that missed something."""
    records = {
        "a": ClusterRecord(
            "l", 3, 5,
            tokens=(a_token(IDS[0], "both"), a_token(IDS[1], "revoked"), a_token(IDS[3], "a")),
        ),
        "b": ClusterRecord(
            "l", 3, 9,
            tokens=(a_token(IDS[0], "both"), a_token(IDS[2], "new")), revoked_tokens=(IDS[1],),
        ),
    }  # fmt: skip
    sim = Simulation()
    for name in order:
        node = sim.start(name, record=records[name])
        assert {one.name for one in node.core.tokens.all()} == {
            one.name for one in records[name].tokens
        }, "those of its own disk count until it knows better"
        sim.run(0.3)
    sim.run(6)
    sim.assert_one_cluster()
    assert everywhere(sim) == {"both", "new", "a"}
    for name in "xy":
        sim.start(name)
    sim.run(6)
    assert everywhere(sim) == {"both", "new", "a"}

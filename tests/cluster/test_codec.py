"""Messages as bytes: they come back equal, and what is new in them is ignored."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkd.cluster.codec import Unreadable, dump, is_message, kind_of, load
from skulkd.cluster.frames import BadFrame, decode, encode
from skulkd.cluster.messages import (
    Ancestor,
    Beat,
    Bye,
    Cede,
    Ceded,
    Conquer,
    Deletion,
    Entries,
    Entry,
    Join,
    Known,
    Message,
    Named,
    Placement,
    Record,
    Session,
    Snapshot,
    Submit,
    Waiting,
)
from skulkd.cluster.sealing import REMEMBERED, TAG_BYTES, Heard, Seal
from skulkd.wire.events import InstanceCreated
from skulkd.wire.ids import EventId
from tests.daemon.builders import A, a_state, an_instance

SESSION = Session(3, A)
EVENT = InstanceCreated(instance=an_instance())
ENTRY = Entry(4, EVENT, "c1", '{"ok": true}')
PLACEMENT = Placement(an_instance(), {A: "kite1"})
DELETION = Deletion(EventId("e"), an_instance().instance_id)
RECORD = Record("l", 2, 9, (PLACEMENT,), True, (DELETION,))
STATE = a_state(instances={an_instance().instance_id: an_instance()})
CEDE = Cede(SESSION, STATE, (PLACEMENT,), {A: "kite1"}, (A,), (DELETION,))
MESSAGES: list[Message] = [
    Beat(SESSION, True, (3, 4), 1.5, (Ancestor(SESSION, 2),)),
    Beat(None, False, (0, -1)),
    Join(SESSION, SESSION, 4, (ENTRY,), RECORD, CEDE),
    Entries(SESSION, (ENTRY,), 4, True, "l", (Ancestor(SESSION, 2),)),
    Snapshot(SESSION, STATE, "l", (EventId("e"),), {"c1": (4, "{}")}, (), (DELETION,)),
    Waiting(SESSION, 4, (PLACEMENT,)),
    Submit(SESSION, (EVENT,)),
    Known(SESSION, (EventId("e"),)),
    Conquer(SESSION),
    CEDE,
    Ceded(SESSION, 4),
    Named(SESSION, "kite1-2"),
    Bye(),
]


@pytest.mark.parametrize("message", MESSAGES, ids=kind_of)
def test_a_message_comes_back_equal(message: Message) -> None:
    assert is_message(kind_of(message))
    assert load(kind_of(message), dump(message)) == message


def test_keys_of_a_newer_version_are_ignored_at_every_depth() -> None:
    raw = json.loads(dump(Entries(SESSION, (ENTRY,), 4)))
    raw["colour"] = "blue"
    raw["entries"][0]["weight"] = 1
    (event,) = raw["entries"][0]["event"].values()
    event["newKey"] = {"x": 1}
    (instance,) = event["instance"].values()
    instance["another"] = 2
    assert load("entries", json.dumps(raw).encode()) == Entries(SESSION, (ENTRY,), 4)


def test_what_cannot_be_read_says_where() -> None:
    with pytest.raises(Unreadable, match=r"Beat\.standing"):
        load("beat", b'{"session": null, "leading": true, "standing": "x"}')


def test_frames_carry_any_bytes() -> None:
    body = bytes(range(256)) * 3
    assert decode(encode("ask", body, i=1)) == ("ask", {"k": "ask", "i": 1}, body)
    for bad in (b"", b"{}\n", b"[1]\n", b"nonsense\nx", b'{"k": 1}\n', b'{"k": "x"}'):
        with pytest.raises(BadFrame):
            decode(bad)


def test_a_seal_opens_only_with_the_same_secret_namespace_and_address() -> None:
    seal = Seal("secret", "ns")
    frame = seal.close("to/a", 7, b"body")
    assert seal.open("to/a", frame) == (7, b"body")
    assert seal.open("to/a", seal.close("to/a", 7, b"")) == (7, b"")
    renumbered = frame[:TAG_BYTES] + (8).to_bytes(8, "big") + b"body"
    assert seal.open("to/a", renumbered) is None
    assert seal.open("to/b", frame) is None
    assert seal.open("to/a", frame[:-1] + b"x") is None
    assert seal.open("to/a", b"") is None
    assert Seal("other", "ns").open("to/a", frame) is None
    assert Seal("secret", "other").open("to/a", frame) is None
    assert "secret" not in seal.password


@given(st.lists(st.integers(1, 2000), max_size=400), st.booleans())
def test_no_number_is_new_twice(numbers: list[int], own: bool) -> None:
    heard = Heard()
    new = [one for one in numbers if heard.is_new("a", one, from_the_first=own)]
    assert len(new) == len(set(new))


@given(st.permutations(range(1, REMEMBERED)))
def test_frames_that_overtake_each_other_are_all_heard(numbers: list[int]) -> None:
    heard = Heard()
    assert all(heard.is_new("a", one, from_the_first=True) for one in numbers)
    assert not any(heard.is_new("a", one, from_the_first=True) for one in numbers)
    assert all(heard.is_new("b", one, from_the_first=True) for one in numbers)


def test_what_was_said_to_all_before_this_node_listened_is_not_believed() -> None:
    heard = Heard()
    assert heard.is_new("all", 1000, from_the_first=False)
    assert not heard.is_new("all", 999, from_the_first=False)
    assert heard.is_new("all", 1001, from_the_first=False)
    for number in range(10_000, 30_000):
        assert heard.is_new("all", number, from_the_first=False)
    assert not heard.is_new("all", 1002, from_the_first=False)
    assert len(heard._addresses["all"].seen) == REMEMBERED

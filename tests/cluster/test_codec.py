"""Messages as bytes: they come back equal, and what is new in them is ignored."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkd.cluster.codec import UnreadableMessage, dump, is_message, kind_of, load
from skulkd.cluster.frame_auth import REMEMBERED, TAG_BYTES, FrameAuth, ReplayGuard
from skulkd.cluster.frames import BadFrame, decode, encode
from skulkd.cluster.messages import (
    AlreadyOrdered,
    Ancestor,
    AssignedName,
    ClusterRecord,
    Deletion,
    Entries,
    HandOver,
    HandOverDone,
    Join,
    JournalEntry,
    JournalSnapshot,
    Leaving,
    MasterSession,
    Message,
    NodeHeartbeat,
    Placement,
    RequestHandOver,
    Submit,
    UnplacedList,
)
from skulkd.wire.events import InstanceCreated
from skulkd.wire.ids import EventId
from tests.daemon.builders import A, a_state, an_instance

SESSION = MasterSession(3, A)
EVENT = InstanceCreated(instance=an_instance())
ENTRY = JournalEntry(4, EVENT, "c1", '{"ok": true}')
PLACEMENT = Placement(an_instance(), {A: "kite1"})
DELETION = Deletion(EventId("e"), an_instance().instance_id)
RECORD = ClusterRecord("l", 2, 9, (PLACEMENT,), True, (DELETION,))
STATE = a_state(instances={an_instance().instance_id: an_instance()})
HAND_OVER = HandOver(SESSION, STATE, (PLACEMENT,), {A: "kite1"}, (A,), (DELETION,))
MESSAGES: list[Message] = [
    NodeHeartbeat(SESSION, True, (3, 4), 1.5, (Ancestor(SESSION, 2),)),
    NodeHeartbeat(None, False, (0, -1)),
    Join(SESSION, SESSION, 4, (ENTRY,), RECORD, HAND_OVER),
    Entries(SESSION, (ENTRY,), 4, True, "l", (Ancestor(SESSION, 2),)),
    JournalSnapshot(SESSION, STATE, "l", (EventId("e"),), {"c1": (4, "{}")}, (), (DELETION,)),
    UnplacedList(SESSION, 4, (PLACEMENT,)),
    Submit(SESSION, (EVENT,)),
    AlreadyOrdered(SESSION, (EventId("e"),)),
    RequestHandOver(SESSION),
    HAND_OVER,
    HandOverDone(SESSION, 4),
    AssignedName(SESSION, "kite1-2"),
    Leaving(),
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


def test_names_on_the_wire_do_not_follow_the_names_of_classes() -> None:
    assert {kind_of(message) for message in MESSAGES} == {
        "beat", "join", "entries", "snapshot", "waiting", "submit", "known", "conquer", "cede",
        "ceded", "named", "bye",
    }  # fmt: skip


def test_what_cannot_be_read_says_where() -> None:
    with pytest.raises(UnreadableMessage, match=r"NodeHeartbeat\.standing"):
        load("beat", b'{"session": null, "leading": true, "standing": "x"}')


def test_frames_carry_any_bytes() -> None:
    body = bytes(range(256)) * 3
    assert decode(encode("ask", body, i=1)) == ("ask", {"k": "ask", "i": 1}, body)
    for bad in (b"", b"{}\n", b"[1]\n", b"nonsense\nx", b'{"k": 1}\n', b'{"k": "x"}'):
        with pytest.raises(BadFrame):
            decode(bad)


def test_a_seal_opens_only_with_the_same_secret_namespace_and_address() -> None:
    auth = FrameAuth("secret", "ns")
    frame = auth.sign("to/a", 7, b"body")
    assert auth.verify("to/a", frame) == (7, b"body")
    assert auth.verify("to/a", auth.sign("to/a", 7, b"")) == (7, b"")
    renumbered = frame[:TAG_BYTES] + (8).to_bytes(8, "big") + b"body"
    assert auth.verify("to/a", renumbered) is None
    assert auth.verify("to/b", frame) is None
    assert auth.verify("to/a", frame[:-1] + b"x") is None
    assert auth.verify("to/a", b"") is None
    assert FrameAuth("other", "ns").verify("to/a", frame) is None
    assert FrameAuth("secret", "other").verify("to/a", frame) is None
    assert "secret" not in auth.password


@given(st.lists(st.integers(1, 2000), max_size=400), st.booleans())
def test_no_number_is_new_twice(numbers: list[int], own: bool) -> None:
    guard = ReplayGuard()
    new = [one for one in numbers if guard.is_new("a", one, from_the_first=own)]
    assert len(new) == len(set(new))


@given(st.permutations(range(1, REMEMBERED)))
def test_frames_that_overtake_each_other_are_all_heard(numbers: list[int]) -> None:
    guard = ReplayGuard()
    assert all(guard.is_new("a", one, from_the_first=True) for one in numbers)
    assert not any(guard.is_new("a", one, from_the_first=True) for one in numbers)
    assert all(guard.is_new("b", one, from_the_first=True) for one in numbers)


def test_what_was_said_to_all_before_this_node_listened_is_not_believed() -> None:
    guard = ReplayGuard()
    assert guard.is_new("all", 1000, from_the_first=False)
    assert not guard.is_new("all", 999, from_the_first=False)
    assert guard.is_new("all", 1001, from_the_first=False)
    for number in range(10_000, 30_000):
        assert guard.is_new("all", number, from_the_first=False)
    assert not guard.is_new("all", 1002, from_the_first=False)
    assert len(guard._addresses["all"].seen) == REMEMBERED

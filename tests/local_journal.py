"""A journal that applies its own events at once, for tests of rooms without a cluster."""

from __future__ import annotations

from skulkd.cluster.journal import Journal
from skulkd.cluster.messages import JournalEntry
from skulkd.cluster.reducer import apply
from skulkd.cluster.replica import Replica
from skulkd.observe.event_log import EventLog
from skulkd.wire.events import Event


def local_journal(events: EventLog, replica: Replica) -> Journal:
    journal = Journal(events, replica)

    def submit(event: Event) -> None:
        index = replica.state.last_event_applied_idx + 1
        journal.applied(apply(replica.state, event, index), [JournalEntry(index, event)])

    journal.connect(submit)
    return journal

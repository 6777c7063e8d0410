"""Last words of processes: which of several that ended together began it. Pure."""

from __future__ import annotations

from skulkctl.verdict.live import SITES
from skulkctl.verdict.ranks import Group, Rank
from skulkctl.verdict.waits import Wait
from skulkctl.views.read import Document, integer, text

KILLED = "runner_ended"
"""What the supervisor writes for every end, with whom it blames."""
_ENDS = frozenset({"pipeline_eval_timeout", "runner_crashed", "deadline", "group_lost", KILLED})


def is_end(entry: Document) -> bool:
    """Whether this is the last that is known of a process."""
    return entry.get("event") in _ENDS


def innocence(entry: Document) -> int:
    """The lower, the more likely it is that the end of all began here."""
    event = entry.get("event")
    if event == KILLED:
        return {"culprit": 0, "lost": 1, "waited": 5}.get(text(entry, "attrs", "blame") or "", 6)
    if event == "group_lost" or _lost_peer(entry):
        return 4
    return 3 if _waited(entry) else 2


def blamed_for(group: Group, ended: Rank, entry: Document) -> Rank | None:
    """Who began it; None when the words are a victim's and name nobody."""
    others = [rank for rank in group.ranks if rank is not ended]
    if entry.get("event") == "group_lost":
        lost = integer(entry, "attrs", "lost_rank")
        return next((rank for rank in others if rank.rank == lost), None)
    if _lost_peer(entry):
        return others[0] if len(others) == 1 else None
    return ended if innocence(entry) in (0, 1, 2) else None


def _lost_peer(entry: Document) -> bool:
    return "peer was lost" in (text(entry, "detail") or "")


def _waited(entry: Document) -> bool:
    """Whether these last words were spoken in a wait for others."""
    return SITES.get(text(entry, "detail") or "", Wait.LOCAL) is not Wait.LOCAL

"""What rank 0 tells the others to do next. They do exactly that, so nobody can differ. Pure.

Goes over the group's own connections and not over the ring: a rank that waits for an order
sleeps, while a rank that waits in the ring burns a core.
"""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from skulkd.wire.chat import FinishReason
from skulkd.wire.ids import TaskId


@dataclass(frozen=True, slots=True)
class Admission:
    """A request joins. `hit` is the number of its known beginning, or -1; `cached` its length."""

    task_id: TaskId
    prompt: list[int]
    max_tokens: int
    hit: int = -1
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """A row leaves because its answer is complete. `keep`: its caches may serve the next turn."""

    uid: int
    reason: FinishReason
    keep: bool


@dataclass(frozen=True, slots=True)
class Order:
    """Membership first, in this order of fields, then one step of one lane."""

    number: int
    ended: tuple[Ended, ...] = ()
    evict: tuple[int, ...] = ()
    refuse: tuple[TaskId, ...] = ()
    cancel: tuple[TaskId, ...] = ()
    admit: tuple[Admission, ...] = ()
    barrier: bool = False
    lane: int | None = None
    rows: int = 0
    size: int = 0
    sleep: bool = False


def to_json(order: Order) -> bytes:
    said = {
        field.name: value
        for field in fields(order)
        if (value := getattr(order, field.name)) != field.default
    }
    for name in ("ended", "admit"):
        if name in said:
            said[name] = [asdict(item) for item in said[name]]
    return json.dumps(said, separators=(",", ":")).encode()


def from_json(content: bytes) -> Order:
    said: dict[str, Any] = json.loads(content)
    for name in ("evict", "refuse", "cancel"):
        if name in said:
            said[name] = tuple(said[name])
    if "ended" in said:
        said["ended"] = tuple(Ended(**item) for item in said["ended"])
    if "admit" in said:
        said["admit"] = tuple(Admission(**item) for item in said["admit"])
    return Order(**said)

"""What rank 0 orders all ranks to do next, itself included. Pure.

Orders go over the ranks' own connections and not over MLX: a rank that waits for an order sleeps,
while a rank that waits in a collective of MLX burns a core.
"""

from dataclasses import dataclass

from pydantic import TypeAdapter

from skulkd.wire.chat import FinishReason
from skulkd.wire.ids import TaskId


@dataclass(frozen=True, slots=True)
class Admission:
    """A request joins. `hit` is its entry in the prefix cache, or -1; `cached` its length."""

    task_id: TaskId
    prompt: list[int]
    max_tokens: int
    hit: int = -1
    cached: int = 0


@dataclass(frozen=True, slots=True)
class RowEnded:
    """A row leaves because its answer is complete. `keep`: its caches may serve the next turn."""

    uid: int
    reason: FinishReason
    keep: bool


@dataclass(frozen=True, slots=True)
class Order:
    """A change of membership, or one step of a lane, or sleep until the next order.

    A step reads up to `size` tokens of up to `rows` prompts besides decoding.
    """

    ended: tuple[RowEnded, ...] = ()
    evict: tuple[int, ...] = ()
    refuse: tuple[TaskId, ...] = ()
    cancel: tuple[TaskId, ...] = ()
    admit: tuple[Admission, ...] = ()
    barrier: bool = False
    lane: int | None = None
    rows: int = 0
    size: int = 0
    sleep: bool = False


_ORDER: TypeAdapter[Order] = TypeAdapter(Order)


def to_json(order: Order) -> bytes:
    return _ORDER.dump_json(order, exclude_defaults=True)


def from_json(content: bytes) -> Order:
    return _ORDER.validate_json(content)

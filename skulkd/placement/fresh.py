"""What must be new for every placement: ids and a port. The only chance in this room."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import uuid4

from skulkd.wire.ids import InstanceId, RunnerId

PORTS = range(49152, 65536)
# Ports of the API, of peers and of the store: a runner must not take them.
RESERVED_PORTS = frozenset({52415, 52416, 58080})


@dataclass(frozen=True, slots=True)
class Fresh:
    """Names for one new instance; one runner id for each rank."""

    instance_id: InstanceId
    runner_ids: tuple[RunnerId, ...]
    port: int


def make_fresh(ranks: int, taken_ports: Iterable[int] = ()) -> Fresh:
    """New names, and a port that no other instance has been given."""
    taken = RESERVED_PORTS.union(taken_ports)
    free = [port for port in PORTS if port not in taken]
    return Fresh(
        instance_id=InstanceId(str(uuid4())),
        runner_ids=tuple(RunnerId(str(uuid4())) for _ in range(ranks)),
        port=random.SystemRandom().choice(free),
    )

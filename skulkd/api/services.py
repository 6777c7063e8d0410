"""What handlers may use: the parts of the node, handed to them by the composition root.

Handlers get it with `services(request)`; nothing here does any work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aiohttp import web

from skulkd.api.auth import Policy
from skulkd.api.lifecycle import Lifecycle
from skulkd.api.metrics import Metrics
from skulkd.api.protocol import own_app
from skulkd.api.tls_watch import TlsWatch
from skulkd.api.token_uses import TokenUses
from skulkd.cluster.journal import Journal
from skulkd.cluster.lost_nodes import LostNodes
from skulkd.cluster.master_status import GetMasterStatus
from skulkd.cluster.replica import Replica
from skulkd.cluster.state_view import StateView
from skulkd.cluster.telemetry import Telemetry
from skulkd.cluster.token_admin import TokenAdmin
from skulkd.cluster.tracing_switch import TracingSwitch
from skulkd.machine.collect import MachineMonitor
from skulkd.observe.event_log import EventLog
from skulkd.observe.observability import Observability
from skulkd.peers import Peers
from skulkd.requests.response_store import ResponseStore
from skulkd.requests.service import Requests
from skulkd.scheduling.placements import Placements
from skulkd.scheduling.unloads import Unloads
from skulkd.settings.running import RunningSettings
from skulkd.store.local_models import LocalModels
from skulkd.store.service import StoreService
from skulkd.swarm.swarm import Swarm
from skulkd.wire.ids import NodeId
from skulkd.wire.links import ApiAddress
from skulkd.worker.worker import Worker


@dataclass(slots=True)
class Identity:
    """Who this node is. The name changes when another node of the cluster has it already."""

    node_id: NodeId
    name: str
    hostname: str
    version: str
    cwd: str


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask, and which paths answer while stopping."""

    policy: Policy
    open_paths: frozenset[str] = frozenset({"/healthz", "/readyz"})


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long clients wait, and are waited for."""

    keep_alive_s: float = 10.0
    write_s: float = 30.0
    """For a client to read what is being written."""
    early_s: float = 1.0
    """For a refusal by the runner to become an HTTP status instead of the end of a stream."""
    placement_s: float = 8.0
    """For readings that the planner needs and that have not arrived yet."""


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of the node."""

    identity: Identity
    access: Access
    settings: RunningSettings
    monitor: MachineMonitor
    replica: Replica
    telemetry: Telemetry
    state: StateView
    events: EventLog
    lifecycle: Lifecycle
    metrics: Metrics
    journal: Journal
    models: LocalModels
    worker: Worker
    requests: Requests
    placements: Placements
    unloads: Unloads
    tracing: TracingSwitch
    tokens: TokenAdmin
    token_uses: TokenUses
    lost_nodes: LostNodes
    peers: Peers
    store: StoreService
    master_status: GetMasterStatus
    observe: Observability
    swarm: Swarm
    responses: ResponseStore = field(default_factory=ResponseStore)
    timeouts: Timeouts = field(default_factory=Timeouts)
    tls: TlsWatch = field(default_factory=TlsWatch)
    api_addresses: Callable[[], Sequence[ApiAddress]] = tuple
    """Where this node's API can be reached."""


SERVICES: web.AppKey[Services] = web.AppKey("services", Services)


def services(request: web.Request) -> Services:
    """The node that serves this request."""
    return own_app(request)[SERVICES]

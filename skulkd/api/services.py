"""What handlers may use: the parts of the node, handed to them by the composition root.

Handlers get it with `services(request)`; nothing here does any work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aiohttp import web

from skulkd.api.auth import Policy
from skulkd.api.inference import Inference
from skulkd.api.lifecycle import Lifecycle
from skulkd.api.lost_nodes import LostNodes
from skulkd.api.metrics import Metrics
from skulkd.api.observing import Observing
from skulkd.api.placing import Placements
from skulkd.api.protocol import own_app
from skulkd.api.running_settings import RunningSettings
from skulkd.api.swarm_room import SwarmRoom
from skulkd.api.tls_watch import TlsWatch
from skulkd.api.token_admin import Tokens
from skulkd.api.tracing_switch import TracingSwitch
from skulkd.cluster.reign import GetReign
from skulkd.cluster.replica import Replica
from skulkd.cluster.state_view import StateView
from skulkd.cluster.telemetry import Telemetry
from skulkd.machine.collect import MachineMonitor
from skulkd.observe.event_log import EventLog
from skulkd.peers import Peers
from skulkd.store.room import StoreRoom
from skulkd.wire.ids import NodeId
from skulkd.wire.links import ApiAddress


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
    inference: Inference
    placements: Placements
    tracing: TracingSwitch
    peers: Peers
    store: StoreRoom
    reign: GetReign
    observe: Observing
    swarm: SwarmRoom
    tokens: Tokens = field(default_factory=Tokens)
    lost_nodes: LostNodes = field(default_factory=LostNodes)
    tls: TlsWatch = field(default_factory=TlsWatch)
    api_addresses: Callable[[], Sequence[ApiAddress]] = tuple
    """Where this node's API can be reached."""


SERVICES: web.AppKey[Services] = web.AppKey("services", Services)


def services(request: web.Request) -> Services:
    """The node that serves this request."""
    return own_app(request)[SERVICES]

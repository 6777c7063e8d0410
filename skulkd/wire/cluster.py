"""Answer of `GET /v1/cluster`: the members as the answering node hears them now."""

from typing import Literal

from pydantic import Field

from skulkd.wire.base import CamelModel, UtcTime
from skulkd.wire.health import NodeHealth
from skulkd.wire.ids import NodeId
from skulkd.wire.links import ApiAddress, MeasuredLink


class ClusterSession(CamelModel):
    """One master's time in the lead."""

    id: str
    age_seconds: float = Field(description="How long this master has led.")


class NodeWarning(CamelModel):
    """Something that does not stop a node from working, and what helps."""

    message: str
    remediation: str | None = None

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.message, self.remediation)))


class NodeCertificate(CamelModel):
    """A TLS certificate that a node has in use."""

    use: Literal["api", "cluster"] = Field(
        description="`api`: for clients of the API; `cluster`: for links between nodes."
    )
    file: str
    subject: str
    names: list[str] = Field(default_factory=list, description="DNS names and IP addresses.")
    issuer: str
    expires_at: UtcTime


class LostNode(CamelModel):
    """A member that left without notice and is not back."""

    name: str
    node_id: NodeId | None = Field(default=None, description="Of its last start, where known.")
    since: UtcTime
    since_seconds: float = Field(description="How long ago that was.")


class ClusterMember(CamelModel):
    node_id: NodeId
    name: str
    is_master: bool
    is_local: bool
    ok: bool = Field(description="Whether it answered just now.")
    error: str | None = Field(default=None, description="Why it did not.")
    version: str | None = None
    session: str | None = Field(
        default=None, description="The session it follows; another one means a split or a change."
    )
    uptime_seconds: float | None = None
    round_trip_ms: float | None = None
    clock_skew_seconds: float | None = Field(
        default=None,
        description="Its wall clock minus that of the answering node, by half a round trip.",
    )
    clock_skew_error_seconds: float | None = Field(
        default=None, description="How wrong the skew may be: half the round trip."
    )
    last_seen_seconds: float | None = Field(
        default=None, description="Age of its last readings; null when there are none."
    )
    health: NodeHealth | None = None
    draining: bool | None = Field(
        default=None, description="Takes no new work; null when nothing was heard of it."
    )
    links: list[MeasuredLink] = Field(
        default_factory=list, description="Ways to other nodes that this one measured."
    )
    api_addresses: list[ApiAddress] = Field(
        default_factory=list, description="Where its API can be reached; none when it did not say."
    )
    warnings: list[NodeWarning] | None = Field(
        default=None, description="What the node warns of; null when it did not say."
    )
    certificates: list[NodeCertificate] | None = Field(
        default=None, description="Certificates it has in use; null when it did not say."
    )


class ClusterView(CamelModel):
    generated_at: str
    local_node_id: NodeId
    master_node_id: NodeId | None = None
    session: ClusterSession | None = None
    namespace: str | None = None
    nodes: list[ClusterMember] = Field(
        default_factory=list, description="The answering node first."
    )
    lost: list[LostNode] = Field(
        default_factory=list,
        description="Members that left without notice, until they are back or forgotten.",
    )


class ForgetRequest(CamelModel):
    name: str = Field(min_length=1, max_length=256, description="Name of a lost node.")


class ForgetAnswer(CamelModel):
    """The node that is listed no longer."""

    name: str
    node_id: NodeId | None = None
    since: UtcTime


class NodePresence(CamelModel):
    """What a node says of itself when another asks whether it is there."""

    name: str
    version: str
    now: float = Field(description="Its wall clock, in seconds since 1970.")
    uptime_seconds: float
    master_node_id: NodeId | None = None
    session: str | None = None
    api_addresses: list[ApiAddress] = Field(default_factory=list)
    warnings: list[NodeWarning] | None = None
    certificates: list[NodeCertificate] | None = None

"""Answers of `GET /v1/load` and `PUT /v1/drain`: how much work nodes have and can take."""

from typing import Any, Literal

from pydantic import Field

from skulkd.wire.base import CamelModel
from skulkd.wire.ids import NodeId


class ClassLoad(CamelModel):
    """One execution class. Chat and agentic work share their places."""

    max_concurrency: int
    active_jobs: int
    queued_jobs: int
    free_slots: int


class ClassLoads(CamelModel):
    chat: ClassLoad = Field(description="Requests without tools.")
    agentic: ClassLoad = Field(description="Requests with tools.")
    generic_job: ClassLoad = Field(description="Work that is no chat; off unless enabled.")


class OpenWork(CamelModel):
    """One thing that a node still has to finish."""

    kind: Literal["request", "gateway_job"]
    id: str
    model: str
    status: str
    seconds: float | None = Field(default=None, description="Since this node learned of it.")


class RecentFailure(CamelModel):
    execution_class: str
    code: str
    at: str


class Load(CamelModel):
    """Numbers of one node, or of all together."""

    max_concurrency: int
    active_jobs: int
    queued_jobs: int
    free_slots: int
    classes: ClassLoads


class NodeLoad(Load):
    node_id: NodeId
    name: str
    draining: bool
    draining_since: str | None = None
    avg_latency_ms: int | None = Field(
        default=None, description="Of the last 50 pieces of work, failed ones too."
    )
    recent_failure_count: int = 0
    recent_failures: list[RecentFailure] = Field(
        default_factory=list, description="The newest ten, newest first."
    )
    catalog_fingerprint: str = Field(description="Changes when the servable models do.")
    hardware_pressure: dict[str, Any] | None = Field(
        default=None, description="Coarse, and only where the owner opted in."
    )
    work: list[OpenWork] = Field(default_factory=list, description="What runs or waits here.")


class NodeLoadRow(CamelModel):
    """A node in the list, also when it does not answer."""

    node_id: NodeId
    name: str
    ok: bool
    error: str | None = None
    load: NodeLoad | None = None


class LoadTotal(Load):
    nodes: int = Field(description="Nodes that answered.")
    draining_nodes: int


class ClusterLoad(CamelModel):
    local_node_id: NodeId
    node: NodeLoad = Field(description="The node that was asked.")
    nodes: list[NodeLoadRow] = Field(description="Every node, that one included.")
    total: LoadTotal


class DrainRequest(CamelModel):
    draining: bool
    node_ids: list[str] | None = Field(
        default=None, max_length=1024, description="Which nodes; null = every node."
    )


class DrainedNode(CamelModel):
    node_id: NodeId
    name: str
    ok: bool
    draining: bool | None = None
    changed: bool = False
    error: str | None = None
    error_code: str | None = Field(
        default=None, description="StorageFull or StorageFailed: it could not be written."
    )


class DrainAnswer(CamelModel):
    nodes: list[DrainedNode]

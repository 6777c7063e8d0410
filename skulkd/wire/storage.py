"""Files on a node and in the shared store; requests to fetch and to remove them."""

from typing import Literal

from pydantic import Field

from skulkd.wire.base import CamelModel, SnakeModel
from skulkd.wire.ids import CommandId, ModelId, NodeId
from skulkd.wire.shards import ShardMetadata

StoreDownloadState = Literal["pending", "downloading", "complete", "failed"]


class StagedModelInfo(CamelModel):
    model_id: str = Field(description="Guessed from the directory name.")
    directory: str
    size_bytes: int
    last_used_epoch_seconds: float
    in_use: bool = Field(default=False, description="An instance has a shard of it on this node.")


class NodeStorageSummary(CamelModel):
    node_id: NodeId
    staging_root: str | None = Field(description="Null when this node does not stage.")
    staged_models: list[StagedModelInfo] = Field(description="Last used first.")
    staged_total_bytes: int
    event_log_bytes: int
    disk_total_bytes: int
    disk_free_bytes: int


class StagedCopy(StagedModelInfo):
    """The same with what only we tell."""

    complete: bool = Field(default=True, description="False while files are missing.")
    in_use_by: list[str] = Field(default_factory=list, description="Why it must stay.")


class NodeStorage(NodeStorageSummary):
    """The same with what only we tell: what eviction keeps, and what it would delete next."""

    staged_models: list[StagedCopy]  # type: ignore[assignment]  # narrower, and only read
    keep_recent_bytes: int | None = Field(
        default=None, description="Copies that eviction leaves; null: it is switched off."
    )
    next_eviction: list[str] = Field(
        default_factory=list, description="Models that the next eviction would delete."
    )
    next_eviction_bytes: int = Field(default=0, description="What that would free.")
    store_path: str | None = Field(default=None, description="On the store host only.")
    log_bytes: int = Field(default=0, description="Log files of the daemon and its runners.")


class NodeStorageAnswer(CamelModel):
    """One node of our `GET /store/storage/cluster`: its storage, or why it is not known."""

    node_id: NodeId
    name: str
    ok: bool
    error: str | None = None
    storage: NodeStorage | None = None


class ClusterStorage(CamelModel):
    nodes: list[NodeStorageAnswer]


class PurgeStagingRequest(CamelModel):
    model_id: ModelId | None = Field(default=None, description="Null or empty: every model.")


class PurgeRequest(PurgeStagingRequest):
    """Body of our `POST /v1/cluster/purge-staging`."""

    dry_run: bool = Field(default=False, description="Only report what would be deleted.")
    nodes: list[NodeId] | None = Field(
        default=None, description="Only these nodes; null: all of them."
    )


class PurgedModel(CamelModel):
    """`reasons` say why a model was left alone."""

    model_id: str
    size_bytes: int
    reasons: list[str] = Field(default_factory=list)


class NodePurge(CamelModel):
    """What a purge did on one node, or would do, or why nothing is known of it."""

    node_id: NodeId
    name: str = ""
    ok: bool = True
    error: str | None = None
    purged: list[PurgedModel] = Field(default_factory=list)
    skipped: list[PurgedModel] = Field(default_factory=list)
    freed_bytes: int = 0
    staged_bytes_before: int = 0
    staged_bytes_after: int = 0
    disk_free_bytes: int = Field(default=0, description="After the purge.")


class PurgeStagingResponse(CamelModel):
    command_id: CommandId
    message: str


class PurgeResult(PurgeStagingResponse):
    """The same with what happened on each node."""

    dry_run: bool = False
    nodes: list[NodePurge] = Field(default_factory=list)


class StoreHealth(CamelModel):
    store_path: str
    free_bytes: int
    total_bytes: int
    used_bytes: int


class StoreRegistryEntry(SnakeModel):
    model_id: ModelId
    store_path: str = Field(description="Relative to the root of the store.")
    files: list[str]
    downloaded_at: str
    total_bytes: int
    repo_has_projector: bool | None = Field(
        default=None, description="Whether the source lists a vision projector; null: not known."
    )


class StoreRegistry(CamelModel):
    entries: list[StoreRegistryEntry]


class StoreDownload(CamelModel):
    model_id: ModelId
    status: StoreDownloadState
    progress: float = Field(description="0 to 1.")
    error: str | None = None


class StoreDownloads(CamelModel):
    downloads: list[StoreDownload]


class StoreDownloadAnswer(CamelModel):
    """Also says `not_found` and `error`, and then names no model and no progress."""

    model_id: ModelId | None = None
    status: StoreDownloadState | Literal["not_found", "error"]
    progress: float | None = Field(default=None, description="0 to 1.")
    error: str | None = None


class StoreDeleteAnswer(CamelModel):
    model_id: ModelId
    deleted: bool


class StartDownloadParams(CamelModel):
    target_node_id: NodeId
    shard_metadata: ShardMetadata


class StartDownloadResponse(CamelModel):
    command_id: CommandId


class DeleteDownloadResponse(CamelModel):
    command_id: CommandId

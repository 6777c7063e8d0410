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


class PurgeStagingRequest(CamelModel):
    model_id: ModelId | None = Field(default=None, description="Null or empty: every model.")


class PurgeStagingResponse(CamelModel):
    command_id: CommandId
    message: str


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

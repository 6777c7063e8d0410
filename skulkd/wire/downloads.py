"""Progress of model files onto a node; one entry per node and model."""

from typing import Annotated

from pydantic import Field

from skulkd.wire.base import CamelModel, Memory, TaggedModel, VariantUnion
from skulkd.wire.ids import NodeId
from skulkd.wire.shards import ShardMetadata


class DownloadProgressData(CamelModel):
    total: Memory
    downloaded: Memory
    downloaded_this_session: Memory
    completed_files: int
    total_files: int
    speed: float = Field(description="Bytes per second.")
    eta_ms: int
    files: dict[str, "DownloadProgressData"] = Field(default_factory=dict)


class BaseDownloadProgress(TaggedModel):
    node_id: NodeId
    shard_metadata: ShardMetadata
    model_directory: str = ""


class DownloadPending(BaseDownloadProgress):
    downloaded: Memory = Field(default_factory=Memory)
    total: Memory = Field(default_factory=Memory)


class DownloadOngoing(BaseDownloadProgress):
    download_progress: DownloadProgressData


class DownloadCompleted(BaseDownloadProgress):
    total: Memory
    read_only: bool = False


class DownloadFailed(BaseDownloadProgress):
    error_message: str


DownloadProgress = Annotated[
    DownloadPending | DownloadOngoing | DownloadCompleted | DownloadFailed, VariantUnion()
]

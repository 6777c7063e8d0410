"""Model files of a node as the entries of `/state.downloads`. Pure; time is given.

One entry for each model: waiting in the store, on its way, here, or failed. Others read them: the
planner to prefer nodes that have the files, `place --wait` and `storage --watch` to show progress.
"""

from dataclasses import dataclass

from skulkd.store.transfer_rate import seconds_left
from skulkd.wire.base import Memory
from skulkd.wire.cards import ModelCard
from skulkd.wire.downloads import (
    DownloadCompleted,
    DownloadFailed,
    DownloadOngoing,
    DownloadPending,
    DownloadProgress,
    DownloadProgressData,
)
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.shards import PipelineShardMetadata, ShardMetadata

MIN_STEP = 0.02
MIN_INTERVAL_S = 1.0
HEARTBEAT_S = 10.0


def whole_model(card: ModelCard) -> PipelineShardMetadata:
    """Files are about the whole model; this is how the contract says so."""
    return PipelineShardMetadata(
        model_card=card,
        device_rank=0,
        world_size=1,
        start_layer=0,
        end_layer=card.n_layers,
        n_layers=card.n_layers,
    )


def bare_card(model_id: ModelId, size_bytes: int = 0) -> ModelCard:
    """For companions, of which nothing is known but their name."""
    return ModelCard(
        model_id=model_id,
        storage_size=Memory.of(size_bytes),
        n_layers=1,
        hidden_size=1,
        supports_tensor=False,
        tasks=["TextGeneration"],
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """Makes the entries of one model on one node."""

    node_id: NodeId
    shard: ShardMetadata
    directory: str = ""

    def pending(self, total_bytes: int) -> DownloadPending:
        return DownloadPending(
            node_id=self.node_id,
            shard_metadata=self.shard,
            model_directory=self.directory,
            total=Memory.of(total_bytes),
        )

    def completed(self, total_bytes: int, *, read_only: bool = False) -> DownloadCompleted:
        return DownloadCompleted(
            node_id=self.node_id,
            shard_metadata=self.shard,
            model_directory=self.directory,
            total=Memory.of(total_bytes),
            read_only=read_only,
        )

    def failed(self, message: str) -> DownloadFailed:
        return DownloadFailed(
            node_id=self.node_id,
            shard_metadata=self.shard,
            model_directory=self.directory,
            error_message=message,
        )

    def ongoing(self, data: DownloadProgressData) -> DownloadOngoing:
        return DownloadOngoing(
            node_id=self.node_id,
            shard_metadata=self.shard,
            model_directory=self.directory,
            download_progress=data,
        )


def model_of(progress: DownloadProgress) -> ModelId:
    return progress.shard_metadata.model_card.model_id


def progress_data(
    total: int, done: int, rate: float | None, *, begun_with: int = 0
) -> DownloadProgressData:
    """Progress of which only bytes are known; a speed or time of 0 means that it is not known."""
    left_s = seconds_left(done, total, rate)
    return DownloadProgressData(
        total=Memory.of(total),
        downloaded=Memory.of(done),
        downloaded_this_session=Memory.of(max(0, done - begun_with)),
        completed_files=0,
        total_files=0,
        speed=rate or 0.0,
        eta_ms=0 if left_s is None else int(left_s * 1000),
    )


@dataclass(slots=True)
class Throttle:
    """Lets few enough progress events through that a journal can hold them."""

    last_at: float | None = None
    last_fraction: float = 0.0

    def passes(self, now: float, fraction: float) -> bool:
        if self.last_at is not None:
            waited = now - self.last_at
            moved = abs(fraction - self.last_fraction) >= MIN_STEP
            if waited < MIN_INTERVAL_S or not (moved or waited >= HEARTBEAT_S):
                return False
        self.last_at, self.last_fraction = now, fraction
        return True

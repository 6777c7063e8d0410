"""Cards, states and model directories for the tests of this folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from skulkd.store.model_ids import unchecked_directory_name
from skulkd.store.staging.area import StagingArea
from skulkd.wire.base import Memory
from skulkd.wire.cards import ModelCard, RuntimeCapabilityCardConfig, VisionCardConfig
from skulkd.wire.ids import InstanceId, ModelId, NodeId, RunnerId
from skulkd.wire.instances import MlxRingInstance
from skulkd.wire.shards import PipelineShardMetadata, ShardAssignments
from skulkd.wire.state import State


def card(
    model_id: str,
    *,
    vision: str | None = None,
    sidecar: str | None = None,
    drafter: str | None = None,
    size_bytes: int = 1000,
) -> ModelCard:
    runtime = RuntimeCapabilityCardConfig(
        mtp_sidecar_repo=sidecar, mtp_heads=sidecar is not None, assistant_model_repo=drafter
    )
    return ModelCard(
        model_id=ModelId(model_id),
        storage_size=Memory.of(size_bytes),
        n_layers=2,
        hidden_size=8,
        supports_tensor=False,
        tasks=["TextGeneration"],
        vision=None if vision is None else VisionCardConfig(weights_repo=vision, image_token_id=1),
        runtime=runtime if sidecar or drafter else None,
    )


def shard(model: ModelCard) -> PipelineShardMetadata:
    return PipelineShardMetadata(
        model_card=model, device_rank=0, world_size=1, start_layer=0, end_layer=2, n_layers=2
    )


def instance(model: ModelCard, node: str, instance_id: str = "1f2e3d4c-rest") -> MlxRingInstance:
    runner = RunnerId(f"runner-{node}")
    return MlxRingInstance(
        instance_id=InstanceId(instance_id),
        shard_assignments=ShardAssignments(
            model_id=model.model_id,
            runner_to_shard={runner: shard(model)},
            node_to_runner={NodeId(node): runner},
        ),
        hosts_by_node={},
        ephemeral_port=50000,
    )


def state_with(*instances: MlxRingInstance) -> State:
    return State(instances={entry.instance_id: entry for entry in instances})


def stage(area: StagingArea, model_id: str, size_bytes: int = 100, *, at: float = 1000.0) -> Path:
    """A whole copy of one file that was last used at this moment."""
    path = area.root / unchecked_directory_name(model_id)
    path.mkdir(parents=True)
    (path / "weights").write_bytes(os.urandom(size_bytes))
    area.mark_complete(model_id, {"weights": size_bytes})
    area.touch(model_id, at)
    return path


async def until(condition: Callable[[], object], what: str, deadline_s: float = 300.0) -> None:
    """Wait for something that other tasks and threads bring about."""
    try:
        async with asyncio.timeout(deadline_s):
            while not condition():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"waited {deadline_s:g} s in vain for: {what}") from None

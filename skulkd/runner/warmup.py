"""The first generation of a runner, on all ranks together, with its entries."""

import time

from skulkd.runner.engine import Engine
from skulkd.runner.faults import Faults
from skulkd.runner.group import Group
from skulkd.runner.phases import Owner, PhaseRecorder
from skulkd.wire.ids import ModelId
from skulkd.wire.shards import BaseShardMetadata


def warm_up(
    engine: Engine,
    group: Group,
    recorder: PhaseRecorder,
    owner: Owner,
    shard: BaseShardMetadata,
    faults: Faults,
) -> None:
    """Wait for all ranks, generate, wait again, so that nobody starts serving alone."""
    model_id: ModelId = shard.model_card.model_id
    recorder.point(
        "warmup", "warmup_start", owner=owner, memory=True, model_id=model_id, group_size=group.size
    )
    with (
        recorder.inside("prefill_barrier", "warmup_pre_generation_barrier", owner=owner),
        recorder.brief("mx_barrier", entry="never"),
    ):
        group.barrier()
    with recorder.inside(
        "warmup", "warmup_mlx_generate", owner=owner, memory=True, model_id=model_id
    ):
        if shard.should_timeout:
            time.sleep(shard.should_timeout)
        faults.stall("wedge_warmup")
        tokens = engine.warm_up()
    with (
        recorder.inside(
            "decode_barrier",
            "warmup_final_barrier",
            owner=owner,
            model_id=model_id,
            tokens_generated=tokens,
        ),
        recorder.brief("mx_barrier", entry="never"),
    ):
        group.barrier()

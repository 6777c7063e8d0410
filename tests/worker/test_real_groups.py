"""Groups of real runners: MLX over the ring, the generated tiny model, real signals."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skulkd.runner.protocol import GenerationOptions
from skulkd.runner.zygote_client import Zygote
from skulkd.store.imports.tiny_model import make_tiny_model
from skulkd.wire.ids import InstanceId
from skulkd.worker.forking import ForkingSpawn
from skulkd.worker.process import Launch, RunnerProcess, Spawn
from tests.worker.group_rig import GroupRig, group_of
from tests.worker.rig import a_request, first_text, is_running, read_all
from tests.worker.test_real_runner import MODEL, card_of, library_of, serving

PROMPT = "How does a fox sleep?"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    make_tiny_model(home / "models")
    return home


@pytest.fixture
async def forking() -> AsyncIterator[Spawn]:
    """One parent for the runners of all nodes, as if each had its own; it starts only once."""
    parent = ForkingSpawn()

    async def spawn(launch: Launch) -> RunnerProcess:
        return await parent(launch)

    yield spawn
    await parent.close()


async def answer(rig: GroupRig, instance_id: InstanceId) -> str:
    stream = await rig.ask(instance_id, PROMPT, model=MODEL, max_output_tokens=24, temperature=0.0)
    text, ended = await read_all(stream)
    assert ended.status == "Complete", ended
    return text


@pytest.mark.skipif(not Zygote.supported(), reason="starting takes too long without forking")
async def test_every_way_of_sharing_answers_like_one_node(
    home: Path, tmp_path: Path, forking: Spawn
) -> None:
    async with serving(home, tmp_path / "alone", spawn=forking) as (alone, instance_id):
        task = a_request(instance_id, PROMPT, model=MODEL, max_output_tokens=24, temperature=0.0)
        expected, _ = await read_all(await alone.worker.submit(task, GenerationOptions()))
    assert expected
    for size, tensor in ((2, False), (2, True), (3, False)):
        logs = tmp_path / f"{size} {tensor}"
        async with group_of(logs, [forking] * size, library=library_of(home)) as rig:
            instance_id = rig.place(card_of(home), tensor=tensor)
            await rig.all_serve()
            assert await answer(rig, instance_id) == expected, (size, tensor)


@pytest.mark.skipif(not Zygote.supported(), reason="starting takes too long without forking")
async def test_ranks_that_die_or_freeze_while_they_decode_come_back(
    home: Path, tmp_path: Path, forking: Spawn
) -> None:
    async with group_of(tmp_path, [forking] * 2, library=library_of(home)) as rig:
        instance_id = rig.place(card_of(home))
        await rig.all_serve()
        expected = await answer(rig, instance_id)
        for rank, number, cause in (
            (0, signal.SIGKILL, "signal=9 (SIGKILL)"),
            (1, signal.SIGKILL, "signal=9 (SIGKILL)"),
            (0, signal.SIGSTOP, "stopped by a signal"),
            (1, signal.SIGSTOP, "stopped by a signal"),
        ):
            stream = await rig.ask(instance_id, PROMPT, model=MODEL, max_output_tokens=4000)
            await first_text(stream)
            old = rig.live_pids()
            os.kill(rig.pid(rank), number)
            _, ended = await read_all(stream)
            assert f"rank {rank} on node-{rank}: {cause}" in (ended.error_message or "")
            await rig.served_again(old)
            assert not any(is_running(pid) for pid in old)
            assert await answer(rig, instance_id) == expected
            # Four crashes in a minute are meant here; whoever restarts a group counts anew.
            old = rig.live_pids()
            rig.workers[0].restart(instance_id)
            await rig.served_again(old)


@pytest.mark.skipif(not Zygote.supported(), reason="starting takes too long without forking")
async def test_a_cancelled_request_leaves_the_ranks_in_step(
    home: Path, tmp_path: Path, forking: Spawn
) -> None:
    async with group_of(tmp_path, [forking] * 2, library=library_of(home)) as rig:
        instance_id = rig.place(card_of(home))
        await rig.all_serve()
        pids = rig.live_pids()
        expected = await answer(rig, instance_id)
        for _ in range(3):
            stream = await rig.ask(instance_id, PROMPT, model=MODEL, max_output_tokens=4000)
            await first_text(stream)
            await stream.aclose()
            assert await answer(rig, instance_id) == expected
        assert rig.live_pids() == pids

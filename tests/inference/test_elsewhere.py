"""Requests for a model that another node holds; the nodes are real but for worker and network."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from skulkd.requests import remote_tasks
from skulkd.requests.dispatch import DispatchDeps, WaitLimits
from skulkd.requests.remote_tasks import RemoteTasks, serve_tasks
from skulkd.runner.protocol import GenerationOptions
from skulkd.wire.events import InstanceDeleted, TaskCreated
from skulkd.wire.ids import InstanceId, ModelId, NodeId
from skulkd.wire.runners import RunnerLoading, RunnerReady
from skulkd.worker.refusals import NotReady, QueueFull, RequestTooLarge
from skulkd.worker.task_stream import SLOW_READER, TaskEnded
from tests.daemon.builders import MODEL, a_task, an_instance
from tests.inference.scripted import USAGE, ScriptedWorker, Stage, Taken, contents, stage, until
from tests.peer_mesh import MeshPeers, peer_mesh

A, B = NodeId("node-a"), NodeId("node-b")


@dataclass
class Pair:
    """Node a takes requests, node b holds the model as instance `far`."""

    a: Stage
    b: Stage
    b_peers: MeshPeers

    def both(self, act: Callable[[Stage], None]) -> None:
        """What a journal would do: the same change on both nodes."""
        act(self.a)
        act(self.b)

    async def taken(self, number: int = 0) -> Taken:
        """The request that b's worker has."""
        return await taken(self.b, number)


async def taken(one: Stage, number: int = 0) -> Taken:
    await until(lambda: len(one.worker.taken) > number, "the request")
    return one.worker.taken[number]


async def dropped(two: Pair, task: Taken) -> bool:
    await until(lambda: task.task.task_id in two.b.worker.cancelled, "the end of the task")
    return True


@contextlib.asynccontextmanager
async def pair(home: Path, *, near: bool = False) -> AsyncIterator[Pair]:
    """With `near` there is an instance on a, too."""
    a_peers, b_peers = peer_mesh(A, B)
    (home / "a").mkdir()
    (home / "b").mkdir()
    async with (
        stage(home / "a", peers=a_peers, ready=near) as a,
        stage(home / "b", peers=b_peers, ready=False) as b,
    ):
        two = Pair(a, b, b_peers)
        two.both(lambda one: one.place("far", (B,)))
        two.both(lambda one: one.report(RunnerReady(), "far"))
        yield two


async def streamed(answer: Any) -> str:
    text: str = await answer.text()
    return text


async def test_the_answer_of_another_node_is_like_one_of_this_node(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        asking = asyncio.create_task(two.a.chat(stream=True, temperature=0.5).__aenter__())
        task = await two.taken()
        assert task.task.owner_node == A
        assert task.task.instance_id == "far"
        assert task.task.task_params.temperature == 0.5
        task.say(*(f"{number} " for number in range(200)))
        task.end()
        text = await streamed(await asking)
        assert contents(text) == "".join(f"{number} " for number in range(200))
        assert text.endswith("data: [DONE]\n\n")
        assert not two.b.worker.cancelled


async def test_usage_and_options_cross_the_wire(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        asking = asyncio.create_task(two.a.chat(n=2, logit_bias={"7": 3}).__aenter__())
        task = await two.taken()
        assert (task.options.n, task.options.logit_bias) == (2, {"7": 3.0})
        two.b.worker.answer_with_usage(0)
        answer = await asking
        assert (await answer.json())["usage"]["total_tokens"] == USAGE.total_tokens


async def test_a_client_that_hangs_up_ends_the_task_on_the_other_node(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        asking = asyncio.create_task(two.a.chat(stream=True).__aenter__())
        task = await two.taken()
        task.say("one")
        answer = await asking
        answer.close()
        assert await dropped(two, task)


async def test_any_node_cancels_a_command(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        for knows in (False, True):
            asking = asyncio.create_task(two.a.chat(stream=True).__aenter__())
            task = await two.taken(int(knows))
            task.say("one")
            answer = await asking
            if knows:
                event = TaskCreated(task_id=task.task.task_id, task=task.task)
                two.b.node.journal.append(event)
            # Not on the node that the client asked, whether its state knows the task or not.
            url = f"{two.b.url}/v1/cancel/{task.task.command_id}"
            async with two.b.client.post(url) as done:
                assert done.status == 200, await done.text()
            text = await streamed(answer)
            assert "[DONE]" not in text
            assert await dropped(two, task)
            async with two.b.client.post(url) as again:
                assert again.status == 404


async def test_refusals_of_another_node_keep_their_type(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        two.b.worker.refusals = [QueueFull(InstanceId("far"), 40, 7)]
        async with two.a.chat(stream=True) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (429, "7")
            assert "40 requests wait" in (await answer.json())["error"]["message"]
        two.b.worker.refusals = [RequestTooLarge("17 MiB")]
        async with two.a.chat() as answer:
            assert answer.status == 413
            assert "17 MiB" in (await answer.json())["error"]["message"]


async def test_a_node_that_is_not_ready_after_all_is_asked_again(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        two.b.worker.refusals = [NotReady(InstanceId("far"), RunnerLoading())]
        two.b.worker.answer_at_once = "late"
        async with two.a.chat() as answer:
            assert (await answer.json())["choices"][0]["message"]["content"] == "late"


async def test_a_lost_node_is_named_to_clients_of_streams(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        asking = asyncio.create_task(two.a.chat(stream=True).__aenter__())
        task = await two.taken()
        task.say("one")
        answer = await asking
        two.b_peers.leave()
        text = await streamed(answer)
        frames = [line[6:] for line in text.split("\n\n") if line.startswith("data: ")]
        assert frames[-1] == "[DONE]"
        error = json.loads(frames[-2])["error"]
        assert (error["code"], error["type"]) == (500, "InternalServerError")
        assert "node-b was lost" in error["message"]
        assert "ask again" in error["message"]


async def test_a_lost_node_is_a_retryable_500_to_others(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        asking = asyncio.create_task(two.a.chat().__aenter__())
        await two.taken()
        two.b_peers.leave()
        answer = await asking
        assert (answer.status, answer.headers["Retry-After"]) == (500, "1")
        assert "node-b was lost" in (await answer.json())["error"]["message"]


async def test_requests_go_where_least_is_to_do(tmp_path: Path) -> None:
    async with pair(tmp_path, near=True) as two:
        asking = [asyncio.create_task(two.a.chat().__aenter__()) for _ in range(4)]
        # Nothing of this is in the state yet, and still nobody gets all of it.
        near = [await taken(two.a, number) for number in range(2)]
        far = [await taken(two.b, number) for number in range(2)]
        for one in (*near, *far):
            one.end()
        for one_asking in asking:
            assert (await one_asking).status == 200
        # What others have sent counts, too.
        two.a.node.journal.append(TaskCreated(task_id=a_task().task_id, task=a_task()))
        last = asyncio.create_task(two.a.chat().__aenter__())
        (await taken(two.b, 2)).end()
        assert (await last).status == 200


async def test_a_slow_reader_is_cut_off_on_its_own_node() -> None:
    a_peers, b_peers = peer_mesh(A, B)
    worker = ScriptedWorker()
    serve_tasks(b_peers, worker)
    stream = await RemoteTasks(a_peers, limit_bytes=1000).submit(B, a_task(), GenerationOptions())
    worker.taken[0].say("x" * 900)
    await asyncio.sleep(0)
    worker.taken[0].say("y" * 900)
    await until(lambda: worker.cancelled, "the end of the task")
    items = [item async for item in stream]
    assert isinstance(items[-1], TaskEnded)
    assert items[-1].error_type == SLOW_READER


async def test_a_model_that_lost_its_node_is_waited_for(tmp_path: Path) -> None:
    unplaced = [an_instance("i1", (A,))]
    limits = WaitLimits(lost_s=0.05, answer_s=0.05)
    async with stage(tmp_path, deps=DispatchDeps(lambda: unplaced), limits=limits) as one:
        one.node.journal.append(InstanceDeleted(instance_id=InstanceId("i1")))
        async with one.chat() as answer:
            assert answer.status == 503
            assert (
                f"lost {A} and is not ready elsewhere yet"
                in (await answer.json())["error"]["message"]
            )
    (tmp_path / "again").mkdir()
    async with stage(
        tmp_path / "again", deps=DispatchDeps(lambda: unplaced), limits=WaitLimits(answer_s=300)
    ) as one:
        one.worker.answer_at_once = "found a new home"
        one.node.journal.append(InstanceDeleted(instance_id=InstanceId("i1")))
        asking = asyncio.create_task(one.chat().__aenter__())
        await until(lambda: one.node.requests.dispatcher.waiting, "the request to wait")
        one.place()
        one.report(RunnerReady())
        answer = await asking
        assert "found a new home" in await answer.text()
        unplaced.clear()
        one.node.journal.append(InstanceDeleted(instance_id=InstanceId("i1")))
        async with one.chat() as gone:
            assert gone.status == 404


async def test_a_model_whose_node_is_gone_is_an_error_that_names_the_node(tmp_path: Path) -> None:
    """The state still lists it: who leads has not noticed, or nobody leads."""
    a_peers, b_peers = peer_mesh(A, B)
    deps = DispatchDeps(node_name=lambda node: {B: "kite2"}.get(node, str(node)))
    limits = WaitLimits(lost_s=0.05, answer_s=0.05)
    async with stage(tmp_path, peers=a_peers, deps=deps, limits=limits) as one:
        one.node.journal.append(InstanceDeleted(instance_id=InstanceId("i1")))
        one.place("far", (B,))
        one.report(RunnerReady(), "far")
        b_peers.leave()
        async with one.chat(stream=False) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
            message = (await answer.json())["error"]["message"]
        assert "lost kite2 and is not ready elsewhere yet; ask again" in message
        async with one.chat(stream=True) as answer:
            text = await answer.text()
        assert "lost kite2" in text
        assert text.endswith("data: [DONE]\n\n")


async def test_who_met_a_loss_does_not_wait_for_a_long_load_elsewhere(tmp_path: Path) -> None:
    a_peers, b_peers = peer_mesh(A, B)
    limits = WaitLimits(lost_s=0.5, answer_s=0.5)
    async with stage(tmp_path, peers=a_peers, limits=limits, ready=False) as one:
        one.node.journal.append(InstanceDeleted(instance_id=InstanceId("i1")))
        one.place("far", (B,))
        b_peers.leave()
        asking = asyncio.create_task(one.chat(stream=False).__aenter__())
        await until(lambda: one.node.requests.dispatcher.waiting, "the request to wait")
        one.node.journal.append(InstanceDeleted(instance_id=InstanceId("far")))
        one.place("near", (A,))
        one.report(RunnerLoading(), "near")
        answer = await asking
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        assert f"lost {B} and is not ready elsewhere" in (await answer.json())["error"]["message"]


async def test_a_node_that_takes_nothing_is_given_up_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the cluster, but its event loop does not run."""
    monkeypatch.setattr(remote_tasks, "ACCEPT_DEADLINE_S", 0.05)
    a_peers, b_peers = peer_mesh(A, B)
    release = asyncio.Event()

    async def hangs(_asker: NodeId, _body: bytes) -> AsyncIterator[bytes]:
        await release.wait()
        yield b"[]"

    b_peers.serve_stream(remote_tasks.METHOD, hangs)
    async with stage(tmp_path, peers=a_peers, limits=WaitLimits(answer_s=0.2)) as one:
        one.node.journal.append(InstanceDeleted(instance_id=InstanceId("i1")))
        one.place("far", (B,))
        one.report(RunnerReady(), "far")
        async with one.chat(stream=False) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
            message = (await answer.json())["error"]["message"]
        assert f"is on {B}, which did not answer" in message


async def test_who_waits_for_files_of_a_silent_store_host_is_told_so(tmp_path: Path) -> None:
    """Not while another copy of the model may become ready."""
    silent: dict[NodeId, dict[ModelId, str]] = {B: {MODEL: "store host kite9 is silent"}}
    deps = DispatchDeps(
        node_name=lambda node: f"name-of-{node}", stalled=lambda node: silent.get(node, {})
    )
    a_peers, _ = peer_mesh(A, B)
    async with stage(tmp_path, peers=a_peers, deps=deps, ready=False) as one:
        one.place("far", (B,))
        asking = asyncio.create_task(one.chat(stream=False).__aenter__())
        await until(lambda: one.node.requests.dispatcher.waiting, "the request to wait")
        one.node.journal.append(InstanceDeleted(instance_id=InstanceId("i1")))
        answer = await asking
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        error = (await answer.json())["error"]
        assert error["refusal"]["kind"] == "store_unreachable"
        assert f"waits for its files on name-of-{B}: store host kite9 is silent" in error["message"]
        one.place("near", (A,))
        one.worker.answer_at_once = "answered"
        asking = asyncio.create_task(one.chat(stream=True).__aenter__())
        await until(lambda: one.node.requests.dispatcher.waiting, "the request to wait")
        one.report(RunnerReady(), "near")
        assert "answered" in await streamed(await asking)


async def test_a_node_without_a_master_cannot_say_that_there_is_no_model(tmp_path: Path) -> None:
    has_master = False
    async with stage(tmp_path, deps=DispatchDeps(has_master=lambda: has_master)) as one:
        async with one.chat(model="org/other") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        has_master = True
        async with one.chat(model="org/other") as answer:
            assert answer.status == 404

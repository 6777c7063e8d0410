"""Embedding requests through the pipeline of chat: relay, redaction, cancellation, failures."""

from __future__ import annotations

import asyncio
import struct
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from skulkd.cluster.redaction import redacted
from skulkd.runner.protocol import EmbeddingItem, Output
from skulkd.wire.events import InstanceCreated, TaskCreated
from skulkd.wire.ids import NodeId
from skulkd.wire.instances import MlxRingInstance
from skulkd.wire.runners import RunnerReady
from skulkd.wire.tasks import TextEmbedding
from skulkd.worker.refusals import QueueFull
from tests.daemon.builders import MODEL, an_instance
from tests.inference.scripted import USAGE, Stage, Taken, stage, until
from tests.inference.test_elsewhere import B, Pair, dropped, pair

VECTORS = [[1.0, 0.5], [-2.0, 0.25]]
BODY = {"model": MODEL, "input": ["a", "b"]}


def an_embedding_instance(name: str, node: NodeId) -> MlxRingInstance:
    instance = an_instance(name, (node,))
    [(runner, shard)] = instance.shard_assignments.runner_to_shard.items()
    card = shard.model_card.model_copy(update={"tasks": ["TextEmbedding"]})
    shards = instance.shard_assignments.model_copy(
        update={"runner_to_shard": {runner: shard.model_copy(update={"model_card": card})}}
    )
    return instance.model_copy(update={"shard_assignments": shards})


def place(one: Stage, name: str, node: NodeId, *, ready: bool = True) -> None:
    """In place of the instance of this name, which is one of a chat model."""
    one.node.journal.append(InstanceCreated(instance=an_embedding_instance(name, node)))
    if ready:
        one.report(RunnerReady(), name)


def answer(taken: Taken) -> None:
    """As a runner does: in several pieces and in any order, the count with the last."""
    for index in (1, 0):
        vector = b64encode(struct.pack("<2f", *VECTORS[index])).decode()
        item = EmbeddingItem(index=index, vector=vector)
        usage = USAGE if index == 0 else None
        output = Output(task_id=taken.task.task_id, embeddings=[item], usage=usage)
        taken.stream.push(output, 40)
    taken.end()


async def posted(one: Stage, path: str, body: dict[str, Any]) -> tuple[int, Any, Any]:
    async with one.client.post(one.url + path, json=body) as answered:
        return answered.status, await answered.json(), answered.headers


def elsewhere(two: Pair) -> None:
    """Node b has the model, and the instance on node a is not ready."""
    for one in (two.a, two.b):
        place(one, "i1", one.node.identity.node_id, ready=False)
        place(one, "far", B)


async def test_the_node_with_the_model_embeds_for_the_node_that_was_asked(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        elsewhere(two)
        asking = asyncio.create_task(posted(two.a, "/v1/embeddings", BODY))
        task = await two.taken()
        embedding: Any = task.task
        assert isinstance(embedding, TextEmbedding)
        assert embedding.task_params.input == ["a", "b"]
        answer(task)
        status, body, _ = await asking
        assert status == 200
        assert [item["embedding"] for item in body["data"]] == VECTORS
        assert body["usage"] == {"prompt_tokens": 5, "total_tokens": 5}

        asking = asyncio.create_task(posted(two.a, "/ollama/api/embed", BODY))
        answer(await two.taken(1))
        status, body, _ = await asking
        assert (status, body["embeddings"], body["prompt_eval_count"]) == (200, VECTORS, 5)
        assert body["total_duration"] > 0
        figures = two.a.node.requests.dispatcher.meter.models[MODEL]
        assert figures.prompt_tokens == 10


async def test_a_client_that_hangs_up_ends_its_task(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        elsewhere(two)
        asking = asyncio.create_task(posted(two.a, "/v1/embeddings", BODY))
        task = await two.taken()
        asking.cancel()
        assert await dropped(two, task)


async def test_a_failure_and_a_full_queue_are_those_of_chat(tmp_path: Path) -> None:
    async with stage(tmp_path, ready=False) as one:
        place(one, "i1", one.node.identity.node_id)
        asking = asyncio.create_task(posted(one, "/v1/embeddings", BODY))
        await until(lambda: one.worker.taken, "the request")
        one.worker.taken[0].end("Failed", "runner_failed", "out of memory")
        status, body, headers = await asking
        assert (status, headers["Retry-After"]) == (500, "1")
        assert body["error"]["message"] == "Embedding failed: out of memory"
        one.worker.refusals.append(QueueFull(an_instance().instance_id, 9, 7))
        status, body, headers = await posted(one, "/api/embed", BODY)
        assert (status, headers["Retry-After"]) == (429, "7")
        assert "9 requests wait" in body["error"]


@pytest.mark.parametrize("path", ["/v1/embeddings", "/api/embed"])
async def test_a_chat_model_is_no_embedding_model(tmp_path: Path, path: str) -> None:
    async with stage(tmp_path) as one:
        status, body, _ = await posted(one, path, BODY)
        assert status == 400
        assert f"Model {MODEL} is not an embedding model" in str(body)
        assert one.worker.taken == []


def test_inputs_do_not_leave_their_node_in_events() -> None:
    task = TextEmbedding.model_validate(
        {
            "taskId": "t1", "instanceId": "i1", "commandId": "c1",
            "taskParams": {"model": "org/embed", "input": ["secret", [1, 2]], "dimensions": 4},
        }
    )  # fmt: skip
    event = redacted(TaskCreated(task_id=task.task_id, task=task))
    assert "secret" not in event.model_dump_json()
    assert isinstance(event, TaskCreated)
    assert event.task.model_dump(mode="json", by_alias=True)["TextEmbedding"]["taskParams"] == {
        "model": "org/embed"
    }

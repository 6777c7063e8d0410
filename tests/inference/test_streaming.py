"""Streams of a real server whose worker is scripted: order, silence, slow readers, ends."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from skulkd.api.services import Timeouts
from skulkd.requests.dispatch import WaitLimits
from skulkd.runner.protocol import PrefillProgress
from skulkd.wire.events import InstanceDeleted
from skulkd.wire.ids import InstanceId
from skulkd.wire.runners import RunnerFailed, RunnerLoading, RunnerReady
from skulkd.worker.refusals import NotReady, QueueFull, RequestTooLarge
from tests.inference.scripted import CHAT, Stage, contents, frames, stage, until

I1 = InstanceId("i1")


async def test_frames_come_in_the_order_clients_rely_on(tmp_path: Path) -> None:
    async with stage(tmp_path) as one:
        asking = asyncio.create_task(read(one, stream=True))
        await until(lambda: one.worker.taken, "the request")
        [taken] = one.worker.taken
        task_id = taken.task.task_id
        taken.stream.push(PrefillProgress(task_id=task_id, processed=3, total=5), 1)
        taken.say("Hel", "lo")
        taken.end()
        status, headers, text = await asking
        assert status == 200
        assert headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert headers["Cache-Control"] == "no-cache"
        assert headers["Connection"] == "close"
        assert headers["X-Accel-Buffering"] == "no"
        got = frames(text)
        assert got[0] == ": keep-alive"
        assert got[1] == f": command_id {taken.task.command_id}"
        assert got[2] == (
            ': prefill_progress {"PrefillProgressChunk":{"model":"org/llama",'
            '"processed_tokens":3,"total_tokens":5}}'
        )
        assert contents(text) == "Hello"
        assert got[-1] == "data: [DONE]"
        assert one.node.requests.dispatcher.meter.completion_tokens == 2


async def test_what_has_arrived_meanwhile_goes_out_in_one_piece(tmp_path: Path) -> None:
    async with stage(tmp_path, timeouts=Timeouts(early_s=20)) as one:
        asking = asyncio.create_task(one.chat(stream=True).__aenter__())
        await until(lambda: one.worker.taken, "the request")
        one.worker.taken[0].say("a", "b", "c", "d")
        one.worker.taken[0].end()
        answer = await asking
        pieces: list[bytes] = [b""]
        async for data, ends in answer.content.iter_chunks():
            pieces[-1] += data
            pieces += [b""] if ends else []
        assert [piece.count(b"data: ") for piece in pieces if piece] == [0, 5]


async def test_the_server_closes_the_connection_of_a_stream(tmp_path: Path) -> None:
    async with stage(tmp_path, idle_limit_s=600) as one:
        one.worker.answer_at_once = "there"
        connection = await connect_and_ask(one)
        reader, writer = await asyncio.open_connection(sock=connection)
        async with asyncio.timeout(300):
            text = await reader.read()
        writer.close()
        assert text.endswith(b"0\r\n\r\n")


async def test_silence_is_filled_with_keep_alives(tmp_path: Path) -> None:
    async with stage(tmp_path, timeouts=Timeouts(keep_alive_s=0.05, early_s=0.0)) as one:
        async with one.chat(stream=True) as answer:
            seen = b""
            while seen.count(b": keep-alive") < 4:
                seen += await answer.content.readany()
            one.worker.taken[0].end()
            seen += await answer.content.read()
        assert seen.endswith(b"data: [DONE]\n\n")


async def test_a_refusal_by_the_runner_is_a_status_also_for_a_stream(tmp_path: Path) -> None:
    async with stage(tmp_path, timeouts=Timeouts(early_s=20)) as one:
        asking = asyncio.create_task(read(one, stream=True))
        await until(lambda: one.worker.taken, "the request")
        one.worker.taken[0].end("Failed", "invalid_request_error", "context_length_exceeded: 9")
        status, _, text = await asking
        assert status == 400
        assert json.loads(text)["error"]["message"] == "context_length_exceeded: 9"


async def test_a_failure_after_the_beginning_is_one_frame_and_the_end(tmp_path: Path) -> None:
    async with stage(tmp_path) as one:
        asking = asyncio.create_task(read(one, stream=True))
        await until(lambda: one.worker.taken, "the request")
        one.worker.taken[0].say("Hel")
        one.worker.taken[0].end("Failed", "runner_crashed", "signal=9 (SIGKILL); ask again")
        status, _, text = await asking
        assert status == 200
        assert contents(text) == "Hel"
        error, done = frames(text)[-2:]
        assert json.loads(error.removeprefix("data: "))["error"] == {
            "message": "signal=9 (SIGKILL); ask again",
            "type": "InternalServerError",
            "param": None,
            "code": 500,
        }
        assert done == "data: [DONE]"


async def test_a_failure_of_a_whole_answer_is_a_real_status(tmp_path: Path) -> None:
    async with stage(tmp_path) as one:
        asking = asyncio.create_task(read(one))
        await until(lambda: one.worker.taken, "the request")
        one.worker.taken[0].say("Hel")
        one.worker.taken[0].end("Failed", "runner_crashed", "signal=9 (SIGKILL)")
        status, headers, text = await asking
        assert (status, headers["Retry-After"]) == (500, "1")
        assert "signal=9" in json.loads(text)["error"]["message"]


async def test_a_cancelled_stream_just_ends(tmp_path: Path) -> None:
    async with stage(tmp_path) as one:
        asking = asyncio.create_task(read(one, stream=True))
        await until(lambda: one.worker.taken, "the request")
        [taken] = one.worker.taken
        taken.say("Hel")
        command_id = taken.task.command_id
        await until(lambda: not taken.stream.ready, "the first token to be read")
        assert await cancel(one, command_id) == 200
        status, _, text = await asking
        assert status == 200
        assert contents(text) == "Hel"
        assert "[DONE]" not in text
        assert "error" not in text
        assert one.worker.cancelled == [taken.task.task_id]
        assert await cancel(one, command_id) == 404


async def test_a_cancelled_whole_answer_is_what_there_was(tmp_path: Path) -> None:
    async with stage(tmp_path) as one:
        asking = asyncio.create_task(read(one))
        await until(lambda: one.worker.taken, "the request")
        [taken] = one.worker.taken
        taken.say("Hel")
        await until(lambda: not taken.stream.ready, "the first token to be read")
        assert await cancel(one, taken.task.command_id) == 200
        status, _, text = await asking
        body = json.loads(text)
        assert status == 200
        assert body["choices"][0]["message"]["content"] == "Hel"
        assert body["choices"][0]["finish_reason"] is None
        assert body["usage"] is None


async def test_usage_has_a_frame_of_its_own_when_asked_for(tmp_path: Path) -> None:
    async with stage(tmp_path) as one:
        asking = asyncio.create_task(read(one, stream=True, stream_options={"include_usage": True}))
        await until(lambda: one.worker.taken, "the request")
        one.worker.answer_with_usage(0)
        _, _, text = await asking
        bodies = [json.loads(f[6:]) for f in frames(text) if f.startswith("data: {")]
        assert [body["usage"] is not None for body in bodies] == [False, True]
        assert bodies[-1]["choices"] == []


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_client_that_hangs_up_takes_its_task_with_it(
    tmp_path: Path, streamed: bool
) -> None:
    async with stage(tmp_path) as one:
        asking = asyncio.create_task(read(one, stream=streamed))
        await until(lambda: one.worker.taken, "the request")
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: one.worker.cancelled, "the end of the task")
        assert one.worker.cancelled == [one.worker.taken[0].task.task_id]
        await until(lambda: not len(one.node.requests), "the end of the command")


async def test_a_request_waits_for_a_model_that_is_loading(tmp_path: Path) -> None:
    async with stage(tmp_path, timeouts=Timeouts(keep_alive_s=0.05), ready=False) as one:
        one.report(RunnerLoading())
        one.worker.answer_at_once = "there"
        async with one.chat(stream=True) as answer:
            seen = b""
            while seen.count(b": keep-alive") < 3:
                seen += await answer.content.readany()
            assert not one.worker.taken
            one.report(RunnerReady())
            seen += await answer.content.read()
        assert contents(seen.decode()) == "there"


async def test_a_runner_that_is_restarted_costs_a_waiting_request_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path, ready=False) as one:
        one.report(RunnerFailed(error_message="signal=9"))
        one.worker.answer_at_once = "there"
        asking = asyncio.create_task(read(one))
        await until(lambda: one.node.requests.dispatcher.waiting, "the request to wait")
        one.report(RunnerReady())
        status, _, _ = await asking
        assert status == 200


async def test_a_model_that_stays_failed_is_reported_with_its_reason(tmp_path: Path) -> None:
    async with stage(tmp_path, limits=WaitLimits(failed_s=0.05), ready=False) as one:
        one.report(RunnerFailed(error_message="weights are cut off"))
        status, headers, text = await read(one)
        assert status == 503
        assert "Retry-After" in headers
        assert "weights are cut off" in json.loads(text)["error"]["message"]
        status, _, text = await read(one, stream=True)
        assert status == 200
        assert "weights are cut off" in frames(text)[-2]
        assert frames(text)[-1] == "data: [DONE]"


async def test_a_model_that_never_becomes_ready_is_given_up(tmp_path: Path) -> None:
    async with stage(tmp_path, limits=WaitLimits(ready_s=0.05), ready=False) as one:
        status, _, text = await read(one)
        assert status == 503
        assert "did not become ready" in text
        assert one.node.requests.dispatcher.waiting == 0


async def test_a_waiting_request_ends_with_its_instance(tmp_path: Path) -> None:
    async with stage(tmp_path, ready=False) as one:
        asking = asyncio.create_task(read(one))
        await until(lambda: one.node.requests.dispatcher.waiting, "the request to wait")
        one.node.journal.append(InstanceDeleted(instance_id=I1))
        status, _, _ = await asking
        assert status == 404


async def test_a_waiting_request_can_be_cancelled(tmp_path: Path) -> None:
    async with stage(tmp_path, ready=False) as one:
        async with one.chat(stream=True) as answer:
            seen = b""
            while b"command_id" not in seen:
                seen += await answer.content.readany()
            command_id = frames(seen.decode())[1].split()[-1]
            assert await cancel(one, command_id) == 200
            seen += await answer.content.read()
        assert len(frames(seen.decode())) == 2
        assert not one.worker.taken


async def test_too_many_that_wait_for_a_model_are_turned_away(tmp_path: Path) -> None:
    async with stage(tmp_path, limits=WaitLimits(max_waiting=1), ready=False) as one:
        asking = asyncio.create_task(read(one))
        await until(lambda: one.node.requests.dispatcher.waiting, "the request to wait")
        for streamed in (True, False):
            status, headers, _ = await read(one, stream=streamed)
            assert status == 429
            assert int(headers["Retry-After"]) > 0
        one.worker.answer_at_once = "there"
        one.report(RunnerReady())
        assert (await asking)[0] == 200


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_full_queue_is_a_429_that_says_when_to_come_back(
    tmp_path: Path, streamed: bool
) -> None:
    async with stage(tmp_path) as one:
        one.worker.refusals = [QueueFull(I1, 32, 7)]
        status, headers, text = await read(one, stream=streamed)
        assert (status, headers["Retry-After"]) == (429, "7")
        assert json.loads(text)["error"]["code"] == 429


async def test_another_instance_takes_what_a_full_one_refuses(tmp_path: Path) -> None:
    async with stage(tmp_path) as one:
        one.place("i2")
        one.report(RunnerReady(), "i2")
        one.worker.refusals = [QueueFull(I1, 32, 7)]
        one.worker.answer_at_once = "there"
        status, _, _ = await read(one)
        assert status == 200
        assert one.worker.taken[0].task.instance_id == "i2"


async def test_a_runner_that_died_a_moment_ago_is_waited_for(tmp_path: Path) -> None:
    async with stage(tmp_path) as one:
        one.worker.refusals = [NotReady(I1, RunnerFailed(error_message="signal=9"))]
        one.worker.answer_at_once = "there"
        assert (await read(one))[0] == 200


async def test_a_request_that_no_runner_can_take_is_too_large(tmp_path: Path) -> None:
    async with stage(tmp_path) as one:
        one.worker.refusals = [RequestTooLarge("17 MiB")]
        assert (await read(one))[0] == 413


async def test_a_reader_that_does_not_read_is_cut_off(tmp_path: Path) -> None:
    async with stage(tmp_path, timeouts=Timeouts(write_s=0.3, early_s=0.0)) as one:
        reader = await connect_and_ask(one)
        await until(lambda: one.worker.taken, "the request")
        [taken] = one.worker.taken
        for _ in range(200):
            taken.say("x" * 100_000)
            await asyncio.sleep(0)
            if one.worker.cancelled:
                break
        await until(lambda: one.worker.cancelled, "the slow reader to be cut off")
        await until(lambda: not len(one.node.requests), "the end of the command")
        reader.close()


async def test_a_stream_that_the_stop_cuts_off_is_told_so(tmp_path: Path) -> None:
    async with stage(tmp_path) as one:
        asking = asyncio.create_task(read(one, stream=True))
        await until(lambda: one.worker.taken, "the request")
        one.worker.taken[0].say("Hel")
        await until(lambda: not one.worker.taken[0].stream.ready, "the token to be read")
        await one.node.lifecycle.drain(grace_s=0.05, abort_s=5.0)
        _, _, text = await asking
        assert contents(text) == "Hel"
        assert "shutting down" in frames(text)[-2]
        assert frames(text)[-1] == "data: [DONE]"
        assert one.worker.cancelled == [one.worker.taken[0].task.task_id]


async def test_an_unplaced_model_is_not_found(tmp_path: Path) -> None:
    async with stage(tmp_path) as one:
        status, _, text = await read(one, model="org/other")
        assert status == 404
        message = json.loads(text)["error"]["message"]
        assert message == "No instance found for model org/other"


async def read(one: Stage, **extra: Any) -> tuple[int, Any, str]:
    async with one.chat(**extra) as answer:
        return answer.status, answer.headers, await answer.text()


async def cancel(one: Stage, command_id: str) -> int:
    async with one.client.post(f"{one.url}/v1/cancel/{command_id}") as answer:
        return int(answer.status)


async def connect_and_ask(one: Stage) -> socket.socket:
    """A client with a small window that sends its request and never reads."""
    host, _, port = one.url.removeprefix("http://").partition(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, (host, int(port)))
    body = json.dumps({**CHAT, "stream": True}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    await loop.sock_sendall(connection, head.encode() + body)
    return connection

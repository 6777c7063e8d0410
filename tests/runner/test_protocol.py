"""Messages survive the pipe, and what is no message is refused."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkd.runner.framing import MAX_FRAME_BYTES, FrameError, FrameSplitter, pack
from skulkd.runner.protocol import (
    Ack,
    Cancel,
    Configure,
    FromRunner,
    GenerationOptions,
    Output,
    OutputItem,
    PrefillProgress,
    ProtocolError,
    RunnerOptions,
    RunTask,
    Status,
    TaskAcknowledged,
    TaskStatus,
    ToRunner,
    decode_from_runner,
    decode_to_runner,
    encode,
    read_from_runner,
)
from skulkd.wire.chat import LogprobsContentItem, ToolCallItem, TopLogprobItem
from skulkd.wire.ids import InstanceId, NodeId, RunnerId, TaskId
from skulkd.wire.instances import Host
from skulkd.wire.runners import RunnerFailed, RunnerIdle, RunnerLoading
from skulkd.wire.shards import PipelineShardMetadata
from skulkd.wire.tasks import LoadModel, Shutdown
from tests.runner.test_phases import Sink, a_recorder
from tests.runner.test_tools import a_card

TASK = TaskId("task-1")
INSTANCE = InstanceId("inst-1")


@pytest.mark.parametrize(
    "message",
    [
        RunTask(task=LoadModel(task_id=TASK, instance_id=INSTANCE)),
        RunTask(
            task=Shutdown(task_id=TASK, instance_id=INSTANCE, runner_id=RunnerId("r")),
            generation=GenerationOptions(n=3, logit_bias={"5": -1.5}, tool_choice="required"),
        ),
        Cancel(task_id=TASK),
        Ack(sequence=7),
    ],
    ids=lambda m: type(m).__name__,
)
def test_a_message_to_the_runner_survives(message: ToRunner) -> None:
    assert decode_to_runner(encode(message)[4:]) == message


@pytest.mark.parametrize(
    "message",
    [
        Status(status=RunnerIdle()),
        Status(status=RunnerLoading(layers_loaded=0, total_layers=8)),
        Status(status=RunnerFailed(error_message="why")),
        TaskAcknowledged(task_id=TASK),
        TaskStatus(task_id=TASK, status="Failed", error_type="x", error_message="y"),
        PrefillProgress(task_id=TASK, processed=0, total=10),
        Output(
            task_id=TASK,
            items=[
                OutputItem(
                    choice=1,
                    text="a\u2028b",
                    tool_calls=[ToolCallItem(name="f", arguments="{}")],
                    logprobs=[
                        LogprobsContentItem(
                            token="a",
                            logprob=-0.5,
                            bytes=[97],
                            top_logprobs=[TopLogprobItem(token="b", logprob=-9999.0)],
                        )
                    ],
                    finish_reason="tool_calls",
                )
            ],
        ),
    ],
    ids=lambda m: type(m).__name__,
)
def test_a_message_from_the_runner_survives(message: FromRunner) -> None:
    assert decode_from_runner(encode(message)[4:]) == message


def test_configuration_and_phases_survive() -> None:
    card = a_card("llama")
    shard = PipelineShardMetadata(
        model_card=card, device_rank=0, world_size=1, start_layer=0, end_layer=1, n_layers=1
    )
    configure = Configure(
        node_id=NodeId("n"),
        runner_id=RunnerId("r"),
        instance_id=INSTANCE,
        model_path="/models/m",
        shard=shard,
        options=RunnerOptions(max_concurrent=2, prefill_step=16),
        group=[Host(ip="127.0.0.1", port=1)],
    )
    assert decode_to_runner(encode(configure)[4:]) == configure
    sink = Sink()
    a_recorder(sink).point("idle", "runner_ready", memory=True, tasks=["a"], count=1)
    assert decode_from_runner(encode(sink.offered[0])[4:]) == sink.offered[0]


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"{",
        b"[]",
        b'[["now", "no_such_phase", "enter", {}], "idle"]',
        b'[["now", "idle", "enter", {"a": null}], "idle"]',
        b'{"Surprise": {}}',
        b'{"Cancel": {}}',
        b'{"Ack": {"sequence": "one"}}',
    ],
)
def test_what_is_no_message_is_a_protocol_error(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_to_runner(frame)
    with pytest.raises(ProtocolError):
        decode_from_runner(frame)


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 9), min_size=1))
def test_frames_come_out_as_they_went_in_however_bytes_arrive(
    contents: list[bytes], sizes: list[int]
) -> None:
    data = b"".join(pack(content) for content in contents)
    splitter = FrameSplitter()
    frames: list[bytes] = []
    turn = 0
    while data:
        size = sizes[turn % len(sizes)]
        frames += splitter.feed(data[:size])
        data = data[size:]
        turn += 1
    assert frames == contents
    assert not splitter.partial


def test_a_frame_over_the_limit_is_refused_on_both_sides() -> None:
    with pytest.raises(FrameError):
        pack(bytes(MAX_FRAME_BYTES + 1))
    with pytest.raises(FrameError):
        FrameSplitter().feed((MAX_FRAME_BYTES + 1).to_bytes(4, "big"))


async def test_the_daemon_reads_messages_to_a_clean_end() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(encode(TaskAcknowledged(task_id=TASK)) * 2)
    reader.feed_eof()
    assert await read_from_runner(reader) == TaskAcknowledged(task_id=TASK)
    assert await read_from_runner(reader) == TaskAcknowledged(task_id=TASK)
    assert await read_from_runner(reader) is None


@pytest.mark.parametrize("kept", [2, 6])
async def test_an_end_inside_a_frame_is_an_error(kept: int) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(encode(TaskAcknowledged(task_id=TASK))[:kept])
    reader.feed_eof()
    with pytest.raises(FrameError):
        await read_from_runner(reader)

"""Which instance has read the beginning of a prompt, and when that outweighs its load."""

from __future__ import annotations

import gc

import pytest

from skulkd.requests.chat_params import chat_params
from skulkd.requests.generation_params import GenerationParams
from skulkd.requests.prefixes import BLOCK_CHARS, MAX_BLOCKS, PrefixMemory
from skulkd.requests.selection import REQUEST_CHARS, best_first
from skulkd.wire.catalogue import ResolvedModelCapabilities
from skulkd.wire.chat import ChatCompletionRequest
from skulkd.wire.ids import InstanceId, RunnerId, TaskId
from skulkd.wire.instances import Instance
from skulkd.wire.runners import RunnerLoading, RunnerReady
from skulkd.wire.state import State
from tests.daemon.builders import A, B, a_task, an_instance

I1, I2 = an_instance("i1"), an_instance("i2", (B,))
SYSTEM = "".join(f"rule {number}: be kind to number {number}. " for number in range(100))


def a_prompt(question: str = "hello", system: str = SYSTEM, model: str = "m", **more: object):  # type: ignore[no-untyped-def]
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    body = {"model": model, "messages": messages, **more}
    request = ChatCompletionRequest.model_validate(body)
    return chat_params(request, ResolvedModelCapabilities(), bench=False)


def known(memory: PrefixMemory, params: GenerationParams) -> list[int]:
    return list(memory.known_chars([I1, I2], memory.blocks(params)).values())


def a_state(busy1: int = 0, busy2: int = 0) -> State:
    tasks = [a_task(f"a{n}", "i1") for n in range(busy1)]
    tasks += [a_task(f"b{n}", "i2") for n in range(busy2)]
    return State(
        instances={one.instance_id: one for one in (I1, I2)},
        runners={runner: RunnerReady() for one in (I1, I2) for runner in runners(one)},
        tasks={TaskId(task.task_id): task for task in tasks},
    )


def runners(instance: Instance) -> list[RunnerId]:
    return list(instance.shard_assignments.runner_to_shard)


def test_the_common_beginning_is_known_where_it_was_answered() -> None:
    memory = PrefixMemory()
    memory.remember(I2, memory.blocks(a_prompt("what is tea?")))
    first, second = known(memory, a_prompt("what is rain?"))
    assert first == 0
    assert len(SYSTEM) - BLOCK_CHARS <= second <= len(SYSTEM) + BLOCK_CHARS
    assert second % BLOCK_CHARS == 0


@pytest.mark.parametrize(
    "other",
    [
        a_prompt(system="x" + SYSTEM),
        a_prompt(model="another"),
        a_prompt(tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}]),
    ],
    ids=["another beginning", "another model", "tools come first"],
)
def test_another_beginning_is_not_known(other: GenerationParams) -> None:
    memory = PrefixMemory()
    memory.remember(I1, memory.blocks(a_prompt()))
    assert known(memory, other) == [0, 0]


def test_a_tool_call_later_in_the_conversation_does_not_change_its_beginning() -> None:
    memory = PrefixMemory()
    memory.remember(I1, memory.blocks(a_prompt()))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "42", "tool_call_id": "c"},
    ]
    request = ChatCompletionRequest.model_validate({"model": "m", "messages": messages})
    params = chat_params(
        request, ResolvedModelCapabilities(supports_tool_calling=True), bench=False
    )
    assert params.task.chat_template_messages is not None
    assert known(memory, params)[0] >= len(SYSTEM) - BLOCK_CHARS


def test_hashes_differ_between_starts_and_hold_no_text() -> None:
    one, other = PrefixMemory(), PrefixMemory()
    secret = "a very secret sentence " * 40
    blocks = one.blocks(a_prompt(system=secret))
    assert blocks and not set(blocks) & set(other.blocks(a_prompt(system=secret)))
    one.remember(I1, blocks)
    del blocks
    kept = [thing for thing in gc.get_referents(one._instances) if isinstance(thing, str)]
    assert "secret" not in repr(vars(one)) and all("secret" not in text for text in kept)


def test_memory_is_bounded_and_keeps_beginnings_longest() -> None:
    memory = PrefixMemory(kept_blocks=4)
    blocks = memory.blocks(a_prompt())
    assert len(blocks) > 4
    memory.remember(I1, blocks)
    assert len(memory) == 4
    assert memory.known_chars([I1], blocks) == {I1.instance_id: 4 * BLOCK_CHARS}
    endless = a_prompt(system="y" * BLOCK_CHARS * (MAX_BLOCKS + 10))
    assert len(memory.blocks(endless)) == MAX_BLOCKS


def test_an_instance_that_is_gone_moved_or_restarted_is_forgotten() -> None:
    for state in (
        State(),
        a_state().model_copy(update={"runners": {runners(I2)[0]: RunnerReady()}}),
        a_state().model_copy(update={"runners": {runners(I1)[0]: RunnerLoading()}}),
    ):
        memory = PrefixMemory()
        memory.remember(I1, memory.blocks(a_prompt()))
        memory.watch(a_state())
        assert known(memory, a_prompt())[0] > 0
        memory.watch(state)
        assert len(memory) == 0
    memory = PrefixMemory()
    memory.remember(I1, memory.blocks(a_prompt()))
    elsewhere = an_instance("i1", (A, B))
    assert memory.known_chars([elsewhere], memory.blocks(a_prompt())) == {InstanceId("i1"): 0}


@pytest.mark.parametrize(
    ("busy1", "chars1", "busy2", "chars2", "first"),
    [
        (0, 0, 0, 0, "i1"),
        (1, 0, 0, 0, "i2"),
        (0, 0, 0, 256, "i2"),
        (0, 0, 2, 3 * REQUEST_CHARS, "i2"),
        (0, 0, 3, 3 * REQUEST_CHARS, "i1"),
        (0, 0, 4, 3 * REQUEST_CHARS, "i1"),
        (2, 8 * REQUEST_CHARS, 0, 7 * REQUEST_CHARS, "i2"),
    ],
)
def test_a_prefix_wins_unless_its_instance_is_busier_by_more_than_it_is_worth(
    busy1: int, chars1: int, busy2: int, chars2: int, first: str
) -> None:
    chars = {I1.instance_id: chars1, I2.instance_id: chars2}
    assert best_first(a_state(busy1, busy2), [I1, I2], {}, chars)[0].instance_id == first


def test_results_are_counted() -> None:
    memory = PrefixMemory()
    known_chars = {I1.instance_id: 512, I2.instance_id: 0}
    memory.count(I1, known_chars)
    memory.count(I2, known_chars)
    memory.count(I1, {I1.instance_id: 0, I2.instance_id: 0})
    assert memory.counts == {"hit": 1, "busy": 1, "miss": 1}

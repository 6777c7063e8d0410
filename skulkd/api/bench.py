"""`POST /bench/chat/completions`: a chat answer with its speed and the power it took."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from skulkd.api.chat_chunks import chat_response
from skulkd.api.generation import GENERATION_ERRORS, answer_whole, prepare_chat
from skulkd.api.routes import RouteTable
from skulkd.api.services import services
from skulkd.api.streams import send
from skulkd.cluster.telemetry import Telemetry
from skulkd.requests.answer import GeneratedAnswer
from skulkd.wire.chat import (
    BenchChatCompletionRequest,
    BenchChatCompletionResponse,
    NodePowerStats,
    PowerUsage,
)
from skulkd.wire.ids import NodeId

routes = RouteTable("chat")
SAMPLE_INTERVAL_S = 1.0


@routes.post(
    "/bench/chat/completions",
    scope="infer",
    summary="Answer a conversation and measure it; never streamed",
    body=BenchChatCompletionRequest,
    answer=BenchChatCompletionResponse,
    errors=GENERATION_ERRORS,
)
async def post_bench_chat(
    request: web.Request, body: BenchChatCompletionRequest
) -> web.StreamResponse:
    node = services(request)
    params = await prepare_chat(node, body.model_copy(update={"stream": False}), bench=True)
    created = int(time.time())
    async with _measured(node.telemetry) as power:
        opened, answer = await answer_whole(request, params)
    _show_thinking_as_text(answer)
    chat = chat_response(
        answer, opened.command_id, body.model, created, logprobs=params.task.logprobs
    )
    whole = BenchChatCompletionResponse(
        **dict(chat.model_copy(update={"usage": None})),
        generation_stats=answer.stats,
        power_usage=power.usage(),
    )
    return await send(request, whole.model_dump_json().encode())


def _show_thinking_as_text(answer: GeneratedAnswer) -> None:
    for choice in answer.choices:
        choice.texts = [*choice.reasoning, *choice.texts]
        choice.reasoning = []


class PowerSampler:
    """Adds up what nodes say they draw."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._started = time.monotonic()
        self._watts: dict[NodeId, list[float]] = {}

    def sample(self) -> None:
        for node_id, readings in self._telemetry.all().items():
            if readings.system is not None and readings.system.sys_power is not None:
                self._watts.setdefault(node_id, []).append(readings.system.sys_power)

    def usage(self) -> PowerUsage | None:
        """None when no node can measure its power."""
        if not self._watts:
            return None
        seconds = time.monotonic() - self._started
        nodes = [
            NodePowerStats(
                node_id=node_id, samples=len(watts), avg_sys_power=sum(watts) / len(watts)
            )
            for node_id, watts in self._watts.items()
        ]
        total = sum(node.avg_sys_power for node in nodes)
        return PowerUsage(
            elapsed_seconds=seconds,
            nodes=nodes,
            total_avg_sys_power_watts=total,
            total_energy_joules=total * seconds,
        )

    async def keep_sampling(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_INTERVAL_S)
            self.sample()


@asynccontextmanager
async def _measured(telemetry: Telemetry) -> AsyncIterator[PowerSampler]:
    meter = PowerSampler(telemetry)
    meter.sample()
    sampling = asyncio.create_task(meter.keep_sampling())
    try:
        yield meter
    finally:
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)

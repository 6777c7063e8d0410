"""Streams of OpenAI's older APIs: what chat and text completions have in common.

Comments carry what the reference tells besides: command id, prefill progress, statistics.
"""

from __future__ import annotations

from typing import Protocol

from skulkd.api.errors import ApiError, phrase
from skulkd.api.generation import Item
from skulkd.api.sse import DONE, KEEP_ALIVE, comment, data, to_json
from skulkd.runner.protocol import Output, OutputItem, PrefillProgress
from skulkd.wire.chat import PrefillProgressChunk, Usage
from skulkd.worker.task_stream import TaskEnded


class Chunks(Protocol):
    """The data frames of one answer."""

    def frame(self, item: OutputItem, usage: Usage | None = None) -> str: ...

    def usage_frame(self, usage: Usage) -> str: ...


class OpenAiFrames:
    """`Frames` of one answer around its data frames."""

    def __init__(self, command_id: str, model: str, chunks: Chunks, *, include_usage: bool) -> None:
        self._command_id = command_id
        self._model = model
        self._chunks = chunks
        self._include_usage = include_usage

    def opening(self, _first: Item | None) -> str:
        return KEEP_ALIVE + comment("command_id", self._command_id)

    def output(self, output: Output) -> str:
        usage = None if self._include_usage else output.usage
        last = len(output.items) - 1
        return "".join(
            self._chunks.frame(item, usage if at == last else None)
            for at, item in enumerate(output.items)
        )

    def progress(self, progress: PrefillProgress) -> str:
        chunk = PrefillProgressChunk(
            model=self._model,
            processed_tokens=progress.processed,
            total_tokens=progress.total,
        )
        return comment("prefill_progress", chunk.model_dump_json(by_alias=False))

    def end(self, ended: TaskEnded) -> str:
        if ended.status != "Complete":
            return ""  # A cancelled stream just ends.
        usage = ""
        if self._include_usage and ended.usage is not None:
            usage = self._chunks.usage_frame(ended.usage)
        stats = ""
        if ended.stats is not None:
            stats = comment("generation_stats", ended.stats.model_dump_json(by_alias=False))
        return f"{usage}{stats}{DONE}"

    def error(self, error: ApiError) -> str:
        return error_frame(error) + DONE


def error_frame(error: ApiError) -> str:
    """The one frame that tells a client of a stream that it failed.

    Clients retry on code 500, so that stands for everything that is not their own fault.
    """
    code, kind = error.status, phrase(error.status)
    if error.status == 400:
        kind = "invalid_request_error"
    elif error.status >= 500:
        code, kind = 500, "InternalServerError"
    body = {"message": error.message, "type": kind, "param": None, "code": code}
    return data(to_json({"error": body}))

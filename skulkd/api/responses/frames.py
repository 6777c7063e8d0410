"""The events of a streamed response, each item and part opened and closed in order. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from skulkd.api.errors import ApiError
from skulkd.api.generation import Item
from skulkd.api.responses.bodies import (
    call_item,
    finished,
    message_item,
    reasoning_item,
)
from skulkd.api.sse import event, to_json
from skulkd.runner.protocol import Output, OutputItem, PrefillProgress
from skulkd.wire.chat import FinishReason, ToolCallItem
from skulkd.wire.responses import (
    ItemStatus,
    MessageOutput,
    OutputEntry,
    OutputTextPart,
    ReasoningOutput,
    ResponseFailure,
    ResponseObject,
    SummaryText,
)
from skulkd.worker.task_stream import TaskEnded

Keep = Callable[[ResponseObject], None]
# Codes from the client's own list.
_FAILURES = {400: "invalid_prompt", 413: "invalid_prompt", 429: "rate_limit_exceeded"}


class ResponseFrames:
    """`Frames` of one response; `keep` gets it when it begins and when it ends."""

    def __init__(self, command_id: str, response: ResponseObject, keep: Keep) -> None:
        self._command_id = command_id
        self._response = response
        self._keep = keep
        self._sequence = 0
        self._output: list[OutputEntry] = []
        self._open: MessageOutput | ReasoningOutput | None = None
        self._texts: list[str] = []
        self._finish: FinishReason | None = None

    def opening(self, _first: Item | None) -> str:
        self._keep(self._response)
        body = {"response": self._response}
        return self._event("response.created", **body) + self._event("response.in_progress", **body)

    def progress(self, _progress: PrefillProgress) -> str:
        return ""

    def output(self, output: Output) -> str:
        return "".join(self._item(item) for item in output.items)

    def end(self, ended: TaskEnded) -> str:
        closing = "" if self._open is None else self._close()
        if not self._output and ended.status == "Complete":
            closing = self._begin(self._new_message())
            closing += self._close()
        self._response = finished(self._response, self._output, self._finish, ended.usage)
        self._keep(self._response)
        if ended.status != "Complete":
            return ""  # A cancelled stream just ends.
        return closing + self._event(f"response.{self._response.status}", response=self._response)

    def closed(self) -> None:
        """The request is over; without an end its client has gone."""
        if self._response.status == "in_progress":
            self._keep(self._response.model_copy(update={"status": "cancelled"}))

    def error(self, error: ApiError) -> str:
        code = _FAILURES.get(error.status, "server_error")
        failure = ResponseFailure(code=code, message=error.message)
        update = {"status": "failed", "error": failure, "output": self._output}
        self._response = self._response.model_copy(update=update)
        self._keep(self._response)
        # The reference ends with the first of them; OpenAI's own clients look for the second.
        told = self._event("error", code=code, message=error.message, param=None)
        return told + self._event("response.failed", response=self._response)

    def _item(self, item: OutputItem) -> str:
        self._finish = item.finish_reason or self._finish
        text = ""
        if item.reasoning:
            if not isinstance(self._open, ReasoningOutput):
                text += self._begin(self._new_reasoning())
            text += self._delta("response.reasoning_summary_text.delta", item.reasoning)
        if item.text:
            if not isinstance(self._open, MessageOutput):
                text += self._begin(self._new_message())
            text += self._delta("response.output_text.delta", item.text)
        return text + "".join(self._call(call) for call in item.tool_calls or ())

    def _id_part(self, kind: type[OutputEntry]) -> str:
        """The command id, with a number from the second item of a kind on."""
        number = sum(isinstance(entry, kind) for entry in self._output)
        return f"{self._command_id}_{number}" if number else self._command_id

    def _new_message(self) -> MessageOutput:
        return message_item(self._id_part(MessageOutput), None, "in_progress")

    def _new_reasoning(self) -> ReasoningOutput:
        return reasoning_item(self._id_part(ReasoningOutput), None, "in_progress")

    def _begin(self, entry: MessageOutput | ReasoningOutput) -> str:
        text = "" if self._open is None else self._close()
        self._open, self._texts = entry, []
        text += self._event(
            "response.output_item.added", output_index=len(self._output), item=entry
        )
        if isinstance(entry, MessageOutput):
            return text + self._part("response.content_part.added", OutputTextPart(text=""))
        return text + self._part("response.reasoning_summary_part.added", SummaryText(text=""))

    def _close(self) -> str:
        """End the open item."""
        whole = "".join(self._texts)
        if isinstance(self._open, MessageOutput):
            status: ItemStatus = "incomplete" if self._finish == "length" else "completed"
            done: OutputEntry = message_item(self._id_part(MessageOutput), whole, status)
            text = self._place("response.output_text.done", text=whole, logprobs=[])
            text += self._part("response.content_part.done", OutputTextPart(text=whole))
        else:
            done = reasoning_item(self._id_part(ReasoningOutput), whole, "completed")
            text = self._place("response.reasoning_summary_text.done", text=whole)
            text += self._part("response.reasoning_summary_part.done", SummaryText(text=whole))
        index = len(self._output)
        self._output.append(done)
        self._open = None
        return text + self._event("response.output_item.done", output_index=index, item=done)

    def _call(self, call: ToolCallItem) -> str:
        text = "" if self._open is None else self._close()
        index = len(self._output)
        begun, done = call_item(call, "in_progress"), call_item(call, "completed")
        place = {"item_id": done.id, "output_index": index}
        self._output.append(done)
        name = "response.function_call_arguments"
        return (
            text
            + self._event("response.output_item.added", output_index=index, item=begun)
            + self._event(f"{name}.delta", **place, delta=call.arguments)
            + self._event(f"{name}.done", **place, name=call.name, arguments=call.arguments)
            + self._event("response.output_item.done", output_index=index, item=done)
        )

    def _delta(self, name: str, text: str) -> str:
        """Written by hand: there is one for every token."""
        self._texts.append(text)
        self._sequence += 1
        is_message = isinstance(self._open, MessageOutput)
        part = "content" if is_message else "summary"
        more = ',"logprobs":[]' if is_message else ""
        item_id = "" if self._open is None else self._open.id
        return event(
            name,
            f'{{"type":"{name}","sequence_number":{self._sequence},"item_id":"{item_id}",'
            f'"output_index":{len(self._output)},"{part}_index":0,"delta":{to_json(text)}{more}}}',
        )

    def _part(self, name: str, part: BaseModel) -> str:
        return self._place(name, part=part)

    def _place(self, kind: str, /, **fields: Any) -> str:
        """An event about the open item."""
        entry = self._open
        index = "content_index" if isinstance(entry, MessageOutput) else "summary_index"
        item_id = "" if entry is None else entry.id
        place = {"item_id": item_id, "output_index": len(self._output), index: 0}
        return self._event(kind, **place, **fields)

    def _event(self, kind: str, /, **fields: Any) -> str:
        self._sequence += 1
        body = {
            key: value.model_dump(by_alias=True) if isinstance(value, BaseModel) else value
            for key, value in fields.items()
        }
        return event(kind, to_json({"type": kind, "sequence_number": self._sequence, **body}))

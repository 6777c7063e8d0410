"""A conversation with a model: its messages so far, and the next request. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from skulkd.wire.chat import ChatCompletionMessage, ChatCompletionRequest


@dataclass
class Conversation:
    """Everything that the next answer depends on."""

    model_id: str
    sampling: Mapping[str, object] = field(default_factory=dict)
    """Fields of the request by their names."""
    system: str | None = None
    turns: list[ChatCompletionMessage] = field(default_factory=list)
    stream: bool = True

    def request(self, prompt: str) -> ChatCompletionRequest:
        """The request that asks this next."""
        fields = {
            "model": self.model_id,
            "messages": [*self.messages(), _message("user", prompt)],
            "stream": self.stream,
            **self.sampling,
        }
        return ChatCompletionRequest.model_validate(fields)

    def messages(self) -> list[ChatCompletionMessage]:
        head = [_message("system", self.system)] if self.system else []
        return [*head, *self.turns]

    def add_turn(self, prompt: str, answer: str) -> None:
        """Keep a prompt and its answer, also a partial one; not one without a word."""
        if answer:
            self.turns += [_message("user", prompt), _message("assistant", answer)]

    def clear(self) -> None:
        self.turns.clear()

    def as_text(self) -> str:
        """The conversation for people."""
        return "\n".join(f"{message.role}:\n{message.content}\n" for message in self.messages())

    def as_json(self) -> str:
        """The conversation as the API takes it."""
        messages = [message.model_dump(exclude_unset=True) for message in self.messages()]
        document = {"model": self.model_id, "messages": messages}
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _message(role: Literal["system", "user", "assistant"], content: str) -> ChatCompletionMessage:
    return ChatCompletionMessage(role=role, content=content)

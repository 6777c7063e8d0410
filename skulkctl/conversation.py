"""A conversation with a model: what has been said, and the next request. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

Message = dict[str, str]


@dataclass
class Conversation:
    """Everything that the next answer depends on."""

    model_id: str
    sampling: Mapping[str, object] = field(default_factory=dict)
    system: str | None = None
    turns: list[Message] = field(default_factory=list)
    stream: bool = True

    def request(self, prompt: str) -> dict[str, object]:
        """The body of the request that asks this next."""
        return {
            "model": self.model_id,
            "messages": [*self.messages(), _message("user", prompt)],
            "stream": self.stream,
            **self.sampling,
        }

    def messages(self) -> list[Message]:
        head = [_message("system", self.system)] if self.system else []
        return [*head, *self.turns]

    def heard(self, prompt: str, answer: str) -> None:
        """Keep a question and its answer, also one that was cut short; not one without a word."""
        if answer:
            self.turns += [_message("user", prompt), _message("assistant", answer)]

    def reset(self) -> None:
        self.turns.clear()

    def as_text(self) -> str:
        """The conversation for people."""
        return "\n".join(f"{entry['role']}:\n{entry['content']}\n" for entry in self.messages())

    def as_json(self) -> str:
        """The conversation as the API takes it."""
        document = {"model": self.model_id, "messages": self.messages()}
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}

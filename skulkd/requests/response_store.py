"""Answers that a client may continue or read again, on the node that gave them.

Bounded by number and size; the least recently used ones go first. Nothing survives a restart.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from skulkd.wire.chat import ChatCompletionMessage
from skulkd.wire.ids import TokenId
from skulkd.wire.responses import ResponseObject

MAX_RESPONSES = 1000
MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """`messages` are the conversation up to and with this answer, without instructions."""

    response: ResponseObject
    messages: Sequence[ChatCompletionMessage]
    owner: TokenId | None = None

    @property
    def size_bytes(self) -> int:
        texts = sum(len(message.model_dump_json()) for message in self.messages)
        return texts + len(self.response.model_dump_json())


class ResponseStore:
    """A response is seen only with the token that it was made with."""

    def __init__(self, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._entries: OrderedDict[str, tuple[StoredResponse, int]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, stored: StoredResponse) -> None:
        """Add or replace; one that is larger than the whole store is not kept."""
        self._drop(stored.response.id)
        size = stored.size_bytes
        if size > self._max_bytes:
            return
        self._entries[stored.response.id] = (stored, size)
        self._bytes += size
        while len(self._entries) > self._max_responses or self._bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def get(self, response_id: str, owner: TokenId | None) -> StoredResponse | None:
        found = self._entries.get(response_id)
        if found is None or found[0].owner != owner:
            return None
        self._entries.move_to_end(response_id)
        return found[0]

    def delete(self, response_id: str, owner: TokenId | None) -> bool:
        if self.get(response_id, owner) is None:
            return False
        self._drop(response_id)
        return True

    def _drop(self, response_id: str) -> None:
        if (entry := self._entries.pop(response_id, None)) is not None:
            self._bytes -= entry[1]

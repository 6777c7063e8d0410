"""Which beginnings of prompts this node has sent to which instance, so that the next prompt with
the same beginning goes where it is cached.

Only keyed hashes of blocks are kept, never text: the key is of this start and leaves no process.
Tokens are known in the runner only, so lengths are characters here.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from skulkd.requests.generation_params import GenerationParams
from skulkd.requests.selection import is_ready
from skulkd.wire.ids import InstanceId, RunnerId
from skulkd.wire.instances import Instance
from skulkd.wire.state import State

BLOCK_CHARS = 256
MAX_BLOCKS = 1024
"""Of one prompt; what lies beyond it is not compared."""
KEPT_BLOCKS = 8192
"""Of one instance; the least recently used are forgotten, as in the runner's own cache."""

RoutingResult = Literal["hit", "busy", "miss"]
Blocks = tuple[bytes, ...]


class _Instance:
    """What one start of the runners of an instance has read."""

    def __init__(self, runners: frozenset[RunnerId]) -> None:
        self.runners = runners
        self.blocks: OrderedDict[bytes, None] = OrderedDict()


class PrefixMemory:
    """Bounded; forgets an instance that is gone, was moved, or is not ready."""

    def __init__(self, key: bytes | None = None, kept_blocks: int = KEPT_BLOCKS) -> None:
        self._key = key or secrets.token_bytes(32)
        self._kept_blocks = kept_blocks
        self._instances: dict[InstanceId, _Instance] = {}
        self.counts: Counter[RoutingResult] = Counter()
        """Requests for which there was a choice."""

    def __len__(self) -> int:
        return sum(len(one.blocks) for one in self._instances.values())

    def blocks(self, params: GenerationParams) -> Blocks:
        """Hashes of the whole blocks of a prompt; each covers everything before it, too."""
        found: list[bytes] = []
        before = params.model.encode()
        for block in _text_blocks(params):
            text = block.encode(errors="surrogatepass")
            before = hashlib.blake2b(before + text, key=self._key, digest_size=16).digest()
            found.append(before)
        return tuple(found)

    def known_chars(
        self, instances: Sequence[Instance], blocks: Blocks
    ) -> Mapping[InstanceId, int]:
        """How much of the prompt's beginning each instance has read."""
        return {
            instance.instance_id: self._known_blocks(instance, blocks) * BLOCK_CHARS
            for instance in instances
        }

    def remember(self, instance: Instance, blocks: Blocks) -> None:
        """The instance has answered this prompt, so it has it in its cache."""
        runners = _runners(instance)
        kept = self._instances.get(instance.instance_id)
        if kept is None or kept.runners != runners:
            kept = self._instances[instance.instance_id] = _Instance(runners)
        # The beginning is used last, so that it is forgotten last: without it the rest is nothing.
        for block in reversed(blocks):
            kept.blocks[block] = None
            kept.blocks.move_to_end(block)
        while len(kept.blocks) > self._kept_blocks:
            kept.blocks.popitem(last=False)

    def watch(self, state: State) -> None:
        """Look at the state after a change: a runner that starts anew has an empty cache."""
        for instance_id in list(self._instances):
            instance = state.instances.get(instance_id)
            if instance is None or not is_ready(state, instance):
                del self._instances[instance_id]

    def count(self, chosen: Instance, known: Mapping[InstanceId, int]) -> None:
        longest = max(known.values(), default=0)
        if longest == 0:
            self.counts["miss"] += 1
        else:
            self.counts["hit" if known[chosen.instance_id] == longest else "busy"] += 1

    def _known_blocks(self, instance: Instance, blocks: Blocks) -> int:
        kept = self._instances.get(instance.instance_id)
        if kept is None or kept.runners != _runners(instance):
            return 0
        for at, block in enumerate(blocks):
            if block not in kept.blocks:
                return at
        return len(blocks)


def _runners(instance: Instance) -> frozenset[RunnerId]:
    return frozenset(instance.shard_assignments.runner_to_shard)


def _text_blocks(params: GenerationParams) -> Iterator[str]:
    """The prompt in pieces of equal length, without the incomplete last one."""
    text = "".join(_parts(params))
    blocks = min(len(text) // BLOCK_CHARS, MAX_BLOCKS)
    for start in range(0, blocks * BLOCK_CHARS, BLOCK_CHARS):
        yield text[start : start + BLOCK_CHARS]


def _parts(params: GenerationParams) -> Iterator[str]:
    """The texts that the chat template is filled with, in the usual order."""
    task = params.task
    if params.options.prompt is not None:
        yield params.options.prompt
        return
    if task.tools:
        yield json.dumps(task.tools, ensure_ascii=False)
    if task.chat_template_messages is None:
        if task.instructions:
            yield _message_text({"role": "system", "content": task.instructions})
        for entry in task.input:
            yield _message_text({"role": entry.role, "content": entry.content})
        return
    for message in task.chat_template_messages:
        yield _message_text(message)


def _message_text(message: Mapping[str, Any]) -> str:
    """The same whether or not other messages of the conversation have more than a text."""
    more = {key: value for key, value in message.items() if key not in ("role", "content")}
    rest = json.dumps(more, ensure_ascii=False) if more else ""
    return f"\0{message.get('role', '')}\0{message.get('content', '')}{rest}"

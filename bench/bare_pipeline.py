"""The yardstick for a pipeline: the same split in a plain `mlx.distributed` script, no runner.

`python -m bench.bare_pipeline DIR` is one rank; `MLX_RANK` and `MLX_HOSTFILE` say which. Rank 0
reads JSON lines {messages, max_tokens} and answers each with {text, first_s, last_s, tokens}. The
last rank draws, everybody hears of it by a sum, and mlx-lm's own loop looks one step ahead.

With {rows} the same prompt is decoded so many times at once, in as many lanes as there are ranks,
and nothing else is done: no text, no requests that come and go. `tokens` are those of all rows.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.generate import stream_generate
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import KVCache
from mlx_lm.sample_utils import make_logits_processors
from mlx_lm.utils import load_model, load_tokenizer

from bench.sse_client import NO_END
from skulkd.runner.cpu.blas_binding import bind_blas

STREAM = mx.default_stream(mx.default_device())


class Stage(nn.Module):
    """Half of a llama: receives, computes its layers, sends."""

    def __init__(self, model: Any, group: mx.distributed.Group) -> None:
        super().__init__()
        inner, count = model.model, len(model.model.layers)
        rank, size = group.rank(), group.size()
        self._group, self._rank, self._last = group, rank, rank == size - 1
        self._embed, self._norm = inner.embed_tokens, inner.norm
        self._head = getattr(model, "lm_head", None) or inner.embed_tokens.as_linear
        self._mine = inner.layers[count * rank // size : count * (rank + 1) // size]
        self._width = model.args.hidden_size

    @property
    def layers(self) -> list[Any]:
        return list(self._mine)

    def make_cache(self) -> list[Any]:
        return [KVCache() for _ in self._mine]

    def __call__(self, inputs: mx.array, cache: Any = None, **_: Any) -> mx.array:
        batch, length = inputs.shape
        if self._rank == 0:
            hidden = self._embed(inputs)
        else:
            shape = (batch, length, self._width)
            hidden = mx.distributed.recv(shape, mx.float32, self._rank - 1, group=self._group)
        mask = create_attention_mask(hidden, cache[0])
        for layer, held in zip(self._mine, cache, strict=True):
            hidden = layer(hidden, mask, cache=held)
        if self._last:
            logits: mx.array = self._head(self._norm(hidden[:, -1:, :]))
            return logits
        sent = mx.distributed.send(hidden, self._rank + 1, group=self._group)
        cache[-1].keys = mx.depends(cache[-1].keys, sent)
        return 0 * sent[:, -1:, :1]


def sampler(group: mx.distributed.Group) -> Any:
    last = group.rank() == group.size() - 1

    def sample(logprobs: mx.array) -> mx.array:
        mine = mx.argmax(logprobs, axis=-1) if last else 0 * logprobs[:, 0]
        return mx.distributed.all_sum(mine.astype(mx.uint32), group=group)

    return sample


def in_lanes(
    stage: Stage, group: mx.distributed.Group, prompt: list[int], rows: int, most: int
) -> dict[str, Any]:
    """Decode equal rows; while the last rank computes one lane, the first computes another."""
    lanes = range(group.size())
    caches = [stage.make_cache() for _ in lanes]
    inputs = [mx.array([prompt] * (rows // group.size())) for _ in lanes]
    drawn: list[mx.array] = [mx.array(0)] * group.size()
    first_s = 0.0
    started = time.perf_counter()
    for step in range(most):
        for lane in lanes:
            if step:
                mx.async_eval(drawn[lane])
                inputs[lane] = drawn[lane][:, None]
            before = drawn[lane]
            drawn[lane] = _drawn(stage(inputs[lane], cache=caches[lane]), group)
            if group.rank() > 0:
                mx.async_eval(drawn[lane])
            mx.eval(before)
        first_s = first_s or time.perf_counter() - started
    mx.eval(drawn)
    last_s = time.perf_counter() - started
    return {"text": "", "first_s": first_s, "last_s": last_s, "tokens": rows * (most - 1)}


def _drawn(output: mx.array, group: mx.distributed.Group) -> mx.array:
    """The tokens of a lane: drawn and sent by the last rank, received by the first."""
    if group.rank() == group.size() - 1:
        best = mx.argmax(output[:, -1, :], axis=-1).astype(mx.uint32)
        return mx.distributed.send(best, 0, group=group)
    mx.async_eval(output)
    if group.rank() == 0:
        last = group.size() - 1
        return mx.distributed.recv((output.shape[0],), mx.uint32, last, group=group)
    return mx.zeros((output.shape[0],), mx.uint32)


def shared(group: mx.distributed.Group, values: list[int]) -> list[int]:
    """Rank 0's numbers, on every rank."""
    first = group.rank() == 0
    size: Any = mx.distributed.all_sum(mx.array(len(values) if first else 0), group=group).item()
    mine = mx.array(values) if first else mx.zeros(size, mx.int32)
    got: Any = mx.distributed.all_sum(mine.astype(mx.int32), group=group).tolist()
    return list(got)


def main() -> None:
    # The same BLAS as the runners have, and nothing else of theirs.
    bind_blas("auto")
    group = mx.distributed.init(strict=True, backend="ring")
    model, config = load_model(Path(sys.argv[1]), lazy=True)
    tokenizer = load_tokenizer(Path(sys.argv[1]), eos_token_ids=config.get("eos_token_id"))
    stage, first = Stage(model, group), group.rank() == 0
    # The same bias as the runners have, where the logits are.
    last = group.rank() == group.size() - 1
    processors = make_logits_processors(dict(NO_END)) if last else []
    mx.eval([layer.parameters() for layer in stage.layers])
    if first:
        print(json.dumps({"ready": True}), flush=True)
    while True:
        line = sys.stdin.readline() if first else ""
        if first and not line:
            break
        request = json.loads(line) if first else {}
        started = time.perf_counter()
        prompt: list[int] = []
        if first:
            prompt = tokenizer.apply_chat_template(
                request["messages"], add_generation_prompt=True, return_dict=False
            )
        asked = [request.get("max_tokens", 0), request.get("rows", 0)]
        *prompt, most, rows = shared(group, [*prompt, *asked])
        if rows:
            answer = in_lanes(stage, group, prompt, rows, most)
            if first:
                print(json.dumps(answer), flush=True)
            continue
        answer = {"text": "", "first_s": 0.0, "last_s": 0.0, "tokens": 0}
        for step in stream_generate(
            stage, tokenizer, prompt, max_tokens=most, sampler=sampler(group), stream=STREAM,
            logits_processors=processors,
        ):  # fmt: skip
            answer["last_s"] = time.perf_counter() - started
            answer["first_s"] = answer["first_s"] or answer["last_s"]
            answer["text"] += step.text
            answer["tokens"] = step.generation_tokens
        if first:
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

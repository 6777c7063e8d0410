"""The yardstick for decoding: mlx-lm's own loop in a process of its own, no server around it.

`python -m bench.raw_generate DIR` reads JSON lines {messages, max_tokens} and answers each with
{text, first_s, last_s, tokens}.
"""

from __future__ import annotations

import json
import sys
import time

from mlx_lm import load, stream_generate
from mlx_lm.sample_utils import make_sampler


def main() -> None:
    model, tokenizer = load(sys.argv[1])[:2]
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        started = time.perf_counter()
        prompt = tokenizer.apply_chat_template(
            request["messages"], add_generation_prompt=True, return_dict=False
        )
        first = last = 0.0
        text, tokens = "", 0
        sampler = make_sampler(temp=0.0)
        for step in stream_generate(
            model, tokenizer, prompt, max_tokens=request["max_tokens"], sampler=sampler
        ):
            last = time.perf_counter() - started
            first = first or last
            text += step.text
            tokens = step.generation_tokens
        answer = {"text": text, "first_s": first, "last_s": last, "tokens": tokens}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

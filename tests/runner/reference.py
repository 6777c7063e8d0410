"""mlx-lm's own answers, computed in a process of its own: the measure for ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.runner.runner_process import DEADLINE_S, runner_environ

_SCRIPT = """
import json, sys
from pathlib import Path
from mlx_lm.generate import stream_generate
from mlx_lm.utils import load
model, tokenizer = load(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    request = json.loads(line)
    prompt = tokenizer.apply_chat_template(request["messages"], add_generation_prompt=True)
    said = list(stream_generate(model, tokenizer, prompt, max_tokens=request["max_tokens"]))
    answer = {"text": "".join(r.text for r in said), "tokens": len(said), "prompt": len(prompt)}
    print(json.dumps(answer), flush=True)
"""


class Reference:
    def __init__(self, model: Path, folder: Path) -> None:
        self._log = (folder / "reference.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, str(model)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=runner_environ(),
            text=True,
        )
        assert self._line() == "ready"

    def greedy(self, messages: list[dict[str, str]], max_tokens: int) -> dict[str, object]:
        assert self._process.stdin is not None
        request = json.dumps({"messages": messages, "max_tokens": max_tokens})
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        answer: dict[str, object] = json.loads(self._line())
        return answer

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.communicate(timeout=DEADLINE_S)
        self._log.close()

"""What the scripts of this directory share; they run in an environment without the toolkit.

python litellm_calls.py CALL '{"url": ..., "model": ..., "schema": ..., "tool": ...}'
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

HANG_S = 300.0
MESSAGES = [{"role": "user", "content": "hello"}]
LONG = [{"role": "user", "content": "a " * 9000}]
BAD_KEY = "skt_0000000000000000_none"
Facts = Mapping[str, Any]


def wait_idle(url: str) -> None:
    """Until the daemon works on no request."""
    ends = time.monotonic() + HANG_S
    while True:
        with urllib.request.urlopen(f"{url}/v1/diagnostics/node") as answer:
            records = json.load(answer)["supervisorRunners"]
        if not any(record["inProgressTasks"] for record in records):
            return
        assert time.monotonic() < ends, "the request goes on after its client has hung up"
        time.sleep(0.05)


def fails(kind: type[BaseException], call: Callable[[], object], text: str = "") -> None:
    """The call must raise this and name the reason."""
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"{kind.__name__} was not raised")


def main(calls: Mapping[str, Callable[[Facts], None]]) -> None:
    calls[sys.argv[1]](json.loads(sys.argv[2]))

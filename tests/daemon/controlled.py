"""A real daemon whose background tasks can be made to end, for `test_tasks.py`.

Started as `python -m tests.daemon.controlled`; takes one JSON object a line from stdin:
`{"cancel": NAME}`, `{"fail": NAME, "error": "OSError"}` (every run of it fails from now on),
`{"heal": NAME}`. Each line is answered by the list of tasks as the supervisor has it.
"""

from __future__ import annotations

import asyncio
import builtins
import json
import logging
import sys
import threading
from typing import Any

from skulkd import node, supervision
from skulkd.node_start import Options
from skulkd.supervision import TaskSupervisor, Work

FAST_S = 0.1


class Control:
    """Reads orders in a thread and carries them out on the event loop."""

    def __init__(self, tasks: TaskSupervisor) -> None:
        self._tasks = tasks
        self._works: dict[str, Work] = {}
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            asyncio.run_coroutine_threadsafe(self._obey(json.loads(line)), self._loop).result()

    async def _obey(self, order: dict[str, Any]) -> None:
        if name := order.get("fail"):
            self._fail(name, getattr(builtins, order["error"]))
        if name := order.get("heal"):
            self._tasks.tasks[name].work = self._works.pop(name)
        if name := order.get("cancel") or order.get("fail"):
            task = self._tasks.tasks[name].task
            if task is not None:
                task.cancel()
        found = {
            name: {"essential": one.essential, "restarts": one.restarts, "problem": one.problem}
            for name, one in self._tasks.tasks.items()
        }
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()

    def _fail(self, name: str, error: type[Exception]) -> None:
        async def fail() -> None:
            raise error("made to fail")

        one = self._tasks.tasks[name]
        self._works[name], one.work = one.work, fail


class ControlledNode(node.Node):
    async def run(self) -> list[str] | None:
        asyncio.get_running_loop().call_soon(lambda: Control(self._parts.tasks))
        return await super().run()


def main() -> int:
    supervision.FIRST_DELAY_S = supervision.SETTLED_S = supervision.LONGEST_DELAY_S = FAST_S
    node.Node = ControlledNode  # type: ignore[misc]
    listen, fabric = "127.0.0.1:0", "127.0.0.1:0"
    flags = {"api.listen": listen, "cluster.listen": fabric, "node.name": "kite1"}
    return node.run_daemon(Options(flags=flags, log_level=logging.INFO))


if __name__ == "__main__":
    sys.exit(main())

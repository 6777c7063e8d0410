"""A runner without MLX: a real process that speaks the real protocol and misbehaves on demand.

`--boot` says how it lives. The text of a request is a command to it, see `_answer`; with ` on 1`
at its end only rank 1 obeys and the others wait for it. Writes its
JSON by hand, so that it starts at once and the daemon's side has to understand it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import struct
import subprocess
import threading
from pathlib import Path
from typing import Any, NoReturn

from skulkd.runner.parent_process import die_with_parent

NEVER = threading.Event()
Fields = dict[str, Any]


def say(text: str) -> None:
    """Into the log, at once."""
    os.write(2, f"{text}\n".encode())


def leave(text: str) -> NoReturn:
    say(text)
    os._exit(3)


class StandIn:
    def __init__(self, in_fd: int, out_fd: int, boot: str) -> None:
        self._input = os.fdopen(in_fd, "rb")
        self._out_fd = out_fd
        self._boot = boot
        self._lock = threading.Lock()
        self._configure: Fields = {}
        self._cancelled: dict[str, threading.Event] = {}

    def run(self) -> None:
        if self._boot == "deaf":
            self._status("RunnerIdle")
            NEVER.wait()
        while message := self._read():
            ((tag, fields),) = message.items()
            if tag == "Configure":
                self._configure = fields
                self._started()
            elif tag == "RunTask":
                ((kind, task),) = fields["task"].items()
                self._task(kind, task)
            elif tag == "Cancel" and self._boot != "obstinate":
                self._cancelled.setdefault(fields["taskId"], threading.Event()).set()

    def _read(self) -> Fields | None:
        header = self._input.read(4)
        if not header:
            return None
        message: Fields = json.loads(self._input.read(*struct.unpack(">I", header)))
        return message

    # Life

    def _started(self) -> None:
        say(f"stand-in {os.getpid()} boots {self._boot}")
        if self._boot == "silent":
            return
        if self._boot == "exit 1 at once":
            say("Traceback of something\nModuleNotFoundError: no such module")
            os._exit(1)
        if self._boot == "with child":
            say(f"child {subprocess.Popen(['sleep', '600']).pid}")
        if self._boot == "ignore shutdown":
            signal.signal(signal.SIGTERM, lambda *_: leave("SIGTERM obeyed"))
        if self._boot == "ignore SIGTERM":
            signal.signal(signal.SIGTERM, lambda *_: say("SIGTERM ignored"))
        self._phase("created", "process_started")
        self._status("RunnerIdle")

    def _task(self, kind: str, task: Fields) -> None:
        if kind == "TextGeneration":
            self._begin(task, "RunnerRunning")
            threading.Thread(target=self._answer, args=(task,), daemon=True).start()
        elif kind == "ConnectToGroup":
            self._connect(task)
        elif kind == "LoadModel":
            self._load(task)
        elif kind == "StartWarmup":
            self._warm_up(task)
        elif kind == "Shutdown":
            self._shut_down(task)

    def _connect(self, task: Fields) -> None:
        self._begin(task, "RunnerConnecting")
        self._phase("connect_group", "enter", task)
        if self._boot == "hang in connect":
            NEVER.wait()
        if self._boot == "crash in connect":
            os._exit(70)
        if self._boot == "lost in connect":
            os._exit(91)
        self._end(task, "Complete")
        self._status("RunnerConnected")

    def _load(self, task: Fields) -> None:
        self._begin(task, "RunnerLoading", totalLayers=8)
        self._phase("load_model", "enter", task)
        if self._boot == "crash in load":
            os._exit(70)
        if self._boot == "hang in load":
            NEVER.wait()
        if self._boot == "bad model":
            self._fail("model.safetensors is cut off: 7 of 9 bytes", 65)
        if self._boot == "refuse to load":
            self._end(task, "Failed", "LoadModel does not fit")
            return
        if self._boot == "fail and stay":
            self._status("RunnerFailed", errorMessage="something broke")
            NEVER.wait()
        self._status("RunnerLoading", layersLoaded=8, totalLayers=8)
        self._end(task, "Complete")
        self._status("RunnerLoaded")

    def _warm_up(self, task: Fields) -> None:
        self._begin(task, "RunnerWarmingUp")
        if self._boot == "wedge":
            self._phase("warmup", "deadline", sequence=7)
            say(f"the answer to the breadcrumb is {self._read()}")
            self._fail("warm-up made no progress for 300 s", 86)
        if self._boot == "hang in warm-up":
            NEVER.wait()
        self._end(task, "Complete")
        self._status("RunnerReady")
        self._phase("idle", "runner_ready")

    def _shut_down(self, task: Fields) -> None:
        if self._boot in {"ignore shutdown", "ignore SIGTERM"}:
            return
        say("shut down as asked")
        self._begin(task, "RunnerShuttingDown")
        self._end(task, "Complete")
        self._status("RunnerShutdown")
        os._exit(0)

    def _fail(self, reason: str, code: int) -> NoReturn:
        self._status("RunnerFailed", errorMessage=reason)
        os._exit(code)

    # Requests

    def _answer(self, task: Fields) -> None:
        self._phase("decode_stream", "enter", task)
        text, _, where = task["taskParams"]["input"][0]["content"].partition(" on ")
        if where and int(where) != self._rank:
            text = "hang"  # it waits for the one that was meant
        command, _, argument = text.partition(" ")
        cancelled = self._cancelled.setdefault(task["taskId"], threading.Event())
        if command == "say":
            self._say(task, int(argument))
        elif command == "fail":
            self._end(task, "Failed", "no such thing" + "!" * int(argument or 0))
        elif command in {"crash", "lose"}:
            self._leave(task, int(argument), telling=command == "lose")
        elif command == "signal":
            self._out(task, "before")
            os.kill(os.getpid(), int(argument))
        elif command == "hang":
            self._out(task, "before")
            cancelled.wait()
            self._end(task, "Cancelled")
            self._status("RunnerReady")
        elif command in {"flood", "flicker"}:
            for number in itertools.count():
                if cancelled.wait(0.0005 if command == "flicker" else 0):
                    break
                self._out(task, "x" * 1000) if command == "flood" else self._flicker(task, number)
            self._end(task, "Cancelled")
        elif command == "burst":
            for _ in range(int(argument)):
                self._phase("decode_stream", "step", task)
            self._phase("decode_stream", "last words", task)
            os._exit(70)
        else:
            self._break_the_pipe(command)

    def _leave(self, task: Fields, code: int, *, telling: bool) -> NoReturn:
        self._out(task, "before")
        if telling:
            own = {"errorType": "runner_failed", "errorMessage": "the runner failed: lost"}
            self._send("TaskStatus", taskId=task["taskId"], status="Failed", **own)
        os._exit(code)

    def _say(self, task: Fields, count: int) -> None:
        if self._rank == 0:
            self._send("PrefillProgress", taskId=task["taskId"], processed=3, total=3)
        for number in range(count):
            self._out(task, f"{number} ")
        usage = {
            "prompt_tokens": 3,
            "completion_tokens": count,
            "total_tokens": 3 + count,
            "prompt_tokens_details": {},
            "completion_tokens_details": {},
        }
        if self._rank == 0:
            self._send("Output", taskId=task["taskId"], usage=usage)
        self._phase("completion", "generation_complete", task)
        self._end(task, "Complete")
        self._end(task, "Complete")
        self._status("RunnerReady")

    def _flicker(self, task: Fields, number: int) -> None:
        self._status("RunnerRunning" if number % 2 else "RunnerReady")
        self._phase("decode_stream", f"{number}", task, sequence=1)

    def _break_the_pipe(self, command: str) -> None:
        if command == "garbage":
            self._write(b'{"Nonsense": true}')
        elif command == "oversize":
            os.write(self._out_fd, b"\xff\xff\xff\xff and more")
        elif command == "close":
            os.close(self._out_fd)

    # Messages

    def _begin(self, task: Fields, status: str, **fields: Any) -> None:
        self._send("TaskStatus", taskId=task["taskId"], status="Running")
        self._status(status, **fields)
        self._send("TaskAcknowledged", taskId=task["taskId"])

    def _end(self, task: Fields, status: str, error: str | None = None) -> None:
        problem = {"errorType": "invalid_request_error", "errorMessage": error} if error else {}
        self._send("TaskStatus", taskId=task["taskId"], status=status, **problem)

    def _status(self, kind: str, **fields: Any) -> None:
        self._send("Status", status={kind: fields})

    @property
    def _rank(self) -> int:
        shard: Fields = next(iter(self._configure["shard"].values()))
        return int(shard["deviceRank"])

    def _out(self, task: Fields, text: str) -> None:
        if self._rank == 0:
            self._send("Output", taskId=task["taskId"], items=[{"text": text, "tokens": 1}])

    def _phase(
        self, phase: str, event: str, task: Fields | None = None, sequence: int | None = None
    ) -> None:
        known: Fields = task or {}
        ids = [known.get("taskId"), known.get("commandId")]
        entry = ["2026-01-02T03:04:05.000006+00:00", phase, event, {}, None, *ids]
        self._write(json.dumps([entry, phase, None, *ids, sequence]).encode())

    def _send(self, tag: str, **fields: Any) -> None:
        self._write(json.dumps({tag: fields}).encode())

    def _write(self, content: bytes) -> None:
        view = memoryview(struct.pack(">I", len(content)) + content)
        with self._lock:
            while view:
                view = view[os.write(self._out_fd, view) :]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--boot", default="")
    parser.add_argument("--boots", type=Path, help="one line for each start; the last one stays")
    parser.add_argument("--in-fd", type=int, required=True)
    parser.add_argument("--out-fd", type=int, required=True)
    arguments = parser.parse_args()
    die_with_parent()
    boot: str = arguments.boot
    if arguments.boots is not None:
        boot, _, rest = arguments.boots.read_text().partition("\n")
        if rest:
            arguments.boots.write_text(rest)
    StandIn(arguments.in_fd, arguments.out_fd, boot).run()


if __name__ == "__main__":
    main()

"""What the flight recorder and tracing take from decoding, measured inside one process.

`python -m bench.observed_decode DIR TOKENS ROUNDS CLIENTS` prints a JSON object: for each way of
being observed the seconds per step of every round, on the wall and of CPU. One model and three
engines take turns, so that a noisy moment hits all of them alike. The pipe is real, and somebody
else reads it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from skulkd.runner.compute import read_memory
from skulkd.runner.cpu.cores import cores_here
from skulkd.runner.faults import Faults
from skulkd.runner.framing import write_all
from skulkd.runner.generation.engine import Engine
from skulkd.runner.generation.leader import Leader
from skulkd.runner.group.group import RankGroup
from skulkd.runner.model.load import LoadedModel, ShardRange, load
from skulkd.runner.pipe import Outbox
from skulkd.runner.protocol import GenerationOptions, RunnerOptions
from skulkd.runner.recording.recorder import PhaseRecorder, Span
from skulkd.store.cards.toml import card_from_toml
from skulkd.wire.diagnostics import RunnerDiagnosticContext
from skulkd.wire.ids import CommandId, InstanceId, ModelId, NodeId, RunnerId, TaskId
from skulkd.wire.tasks import InputMessage, TextGeneration, TextGenerationTaskParams

WAYS = ("unobserved", "recorded", "traced")
FLUSH_S = 60.0


class NoRecorder(PhaseRecorder):
    """What decoding would be without a recorder. Keeps no entry and reads no memory."""

    def point(self, *_: Any, **__: Any) -> None:
        return

    def enter(self, *_: Any, **__: Any) -> Span:
        return self._base

    def leave(self, span: Span) -> None:
        return

    def abandon(self, span: Span) -> None:
        return


class Bench:
    """One engine and how it is observed."""

    def __init__(self, way: str, loaded: LoadedModel, out_fd: int) -> None:
        self.way = way
        self.outbox = Outbox(lambda data: write_all(out_fd, data), sys.exit)
        self.outbox.start()
        kind = NoRecorder if way == "unobserved" else PhaseRecorder
        recorder = kind(_context(loaded), self.outbox, read_memory)
        options = RunnerOptions(prefix_cache_bytes=0)
        self.engine = Engine(loaded, options, RankGroup(), recorder, self.outbox.send, Faults({}))
        self.engine.warm_up()
        self.leader = Leader(self.engine, options.max_concurrent, 1)

    def _step(self) -> None:
        self.engine.follow(self.leader.next_order(), lambda _: None)

    def decode(self, turn: int, tokens: int, clients: int) -> tuple[float, float]:
        """Seconds per step from the first token of the slowest client on: on the wall, of CPU."""
        for number in range(clients):
            self.leader.accept(self._task(f"{self.way}-{turn}-{number}", tokens), _NOTHING)
        while not self._all_decode(clients):
            self._step()
        began, burned, steps = time.perf_counter(), time.process_time(), 0
        while self.leader.busy:
            self._step()
            steps += 1
        if not self.outbox.flush(FLUSH_S):
            raise RuntimeError("nobody reads the pipe")
        wall, cpu = time.perf_counter() - began, time.process_time() - burned
        return wall / steps, cpu / steps

    def _all_decode(self, clients: int) -> bool:
        started = [request.first_token_at for request in self.engine._requests.values()]
        return len(started) == clients and all(started)

    def _task(self, name: str, tokens: int) -> TextGeneration:
        return TextGeneration(
            task_id=TaskId(name),
            instance_id=InstanceId("bench"),
            command_id=CommandId(name),
            trace_enabled=self.way == "traced",
            task_params=TextGenerationTaskParams(
                model=ModelId("bench"),
                input=[InputMessage(role="user", content="Count to a hundred.")],
                temperature=0.0,
                max_output_tokens=tokens,
            ),
        )


_NOTHING = GenerationOptions()


def _context(loaded: LoadedModel) -> RunnerDiagnosticContext:
    layers = loaded.card.n_layers
    return RunnerDiagnosticContext(
        node_id=NodeId("bench"),
        runner_id=RunnerId("bench"),
        pid=os.getpid(),
        instance_id=InstanceId("bench"),
        model_id=loaded.card.model_id,
        rank=0,
        world_size=1,
        start_layer=0,
        end_layer=layers,
        n_layers=layers,
    )


def measure(
    directory: Path, tokens: int, rounds: int, clients: int
) -> dict[str, list[tuple[float, float]]]:
    card = card_from_toml((directory / "card.toml").read_text(), "card.toml")
    loaded = load(
        directory,
        card,
        part=ShardRange(RankGroup(), 0, card.n_layers),
        trust_remote_code=False,
        on_layer=lambda _, __: None,
        cores=cores_here(),
    )
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as reader:
        assert reader.stdin is not None
        benches = [Bench(way, loaded, reader.stdin.fileno()) for way in WAYS]
        taken: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for turn in range(rounds + 1):
            # Each way goes first as often as the others.
            shift = turn % len(benches)
            for bench in benches[shift:] + benches[:shift]:
                took = bench.decode(turn, tokens, clients)
                if turn:  # the first round warms up
                    taken[bench.way].append(took)
        reader.stdin.close()
    return taken


def main() -> None:
    import mlx.core as mx

    if mx.default_device() == mx.cpu:
        mx.disable_compile()  # as a runner does
    tokens, rounds, clients = map(int, sys.argv[2:])
    print(json.dumps(measure(Path(sys.argv[1]), tokens, rounds, clients)))


if __name__ == "__main__":
    main()

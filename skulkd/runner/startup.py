"""The tasks that make a runner ready: connect to the group, load the model, warm up."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from skulkd.runner.compute import compute_report
from skulkd.runner.cpu.blas_binding import BlasInUse
from skulkd.runner.cpu.cores import cores_here, machine_id, share_machine
from skulkd.runner.embedding.engine import EmbeddingEngine
from skulkd.runner.embedding.load import (
    EmbeddingModel,
    from_decoder,
    is_encoder,
    load_encoder,
)
from skulkd.runner.errors import BadModel, GroupUnreachable
from skulkd.runner.exits import ExitCode
from skulkd.runner.faults import Faults
from skulkd.runner.generation.engine import Engine
from skulkd.runner.group.group import RankGroup, agreed_options, connect
from skulkd.runner.model.load import LoadedModel, ShardRange, load
from skulkd.runner.pipe import Inbox, Outbox
from skulkd.runner.prompts.template_process import Renderer
from skulkd.runner.protocol import Computing, Configure, RunnerOptions
from skulkd.runner.recording.recorder import Owner, PhaseRecorder
from skulkd.runner.reports import StatusReporter
from skulkd.runner.watchdog import Watchdog
from skulkd.wire import runners
from skulkd.wire.tasks import BaseTask

REBOOT = (
    "The accelerator is probably wedged: delete the instance, and reboot this machine if it "
    "happens again."
)
_NETWORK = "Check that the machines of the group reach each other, then place again."
_DISK = "The disk or share that holds the model is slow or gone: check it and place again."
# The rendezvous has its own limit and knows more; this one is for what hangs after it.
_CONNECT_GRACE_S = 15.0


@dataclass(frozen=True, slots=True)
class RunnerDeps:
    """What every part of a runner's session uses."""

    configure: Configure
    inbox: Inbox
    outbox: Outbox
    recorder: PhaseRecorder
    reports: StatusReporter
    watchdog: Watchdog
    faults: Faults


class Startup:
    """`options`, `group` and `loaded` are its results so far."""

    def __init__(self, deps: RunnerDeps, render: Renderer, blas: BlasInUse) -> None:
        self._deps = deps
        self._shard = deps.configure.shard
        self._render = render
        self._blas = blas
        self._cores: int | None = None
        self.options = deps.configure.options
        self.group = RankGroup()
        self.loaded: LoadedModel | EmbeddingModel | None = None

    def connect(self, task: BaseTask) -> None:
        """Raises GroupUnreachable."""
        deps, shard, hosts = self._deps, self._shard, self._deps.configure.group or []
        deps.reports.begin(task, runners.RunnerConnecting())
        if len(hosts) != shard.world_size:
            raise GroupUnreachable(
                f"the group has {shard.world_size} ranks and {len(hosts)} addresses"
            )
        limit_s = self.options.connect_deadline_s + _CONNECT_GRACE_S
        with (
            deps.recorder.span(
                "connect_group",
                "initialize_mlx",
                owner=Owner(task.task_id),
                memory=True,
                rank=shard.device_rank,
                group_size=shard.world_size,
                addresses=[f"{host.ip}:{host.port}" for host in hosts],
            ),
            deps.watchdog.limit("joining the group", limit_s, ExitCode.CONNECT_DEADLINE, _NETWORK),
        ):
            deps.faults.stall("stall_connect")
            with deps.recorder.wait("group_handshake", entry="never"):
                self._join()
        self.group.listen(deps.inbox.order, deps.reports.rank_lost)
        deps.reports.complete(task, runners.RunnerConnected())

    def _join(self) -> None:
        announcement: dict[str, object] = {
            "options": self.options.model_dump(),
            "machine": machine_id(),
        }
        self.group, announcements = connect(self._deps.configure, announcement)
        options = [RunnerOptions.model_validate(item["options"]) for item in announcements]
        self.options = agreed_options(self.options, options)
        machines = [item.get("machine") for item in announcements]
        self._cores = share_machine(self.options.cores, self.group.rank, machines)

    def load(self, task: BaseTask) -> None:
        """Raises BadModel."""
        deps, shard = self._deps, self._shard
        total = shard.end_layer - shard.start_layer
        deps.reports.begin(task, runners.RunnerLoading(layers_loaded=0, total_layers=total))
        if shard.immediate_exception:
            raise RuntimeError("the shard asks for a failure (immediateException)")
        owner = Owner(task.task_id)
        with (
            deps.recorder.span("load_model", "load_mlx_items", owner=owner, memory=True),
            deps.watchdog.limit(
                "reading the model", self.options.layer_deadline_s, ExitCode.LOAD_DEADLINE, _DISK
            ) as progress,
        ):

            def on_layer(loaded: int, of: int) -> None:
                progress()
                deps.reports.set_status(
                    runners.RunnerLoading(layers_loaded=loaded, total_layers=of)
                )

            loaded = self.loaded = self._load(on_layer)
        compute = compute_report(self._blas, loaded, float32=self.options.float32)
        attrs = compute.model_dump(exclude_none=True)
        deps.recorder.point(
            "load_model", "loaded", "builder_complete", owner=owner, memory=True, **attrs
        )
        deps.outbox.send(Computing(compute=compute))
        deps.reports.complete(task, runners.RunnerLoaded())

    def _load(self, on_layer: Callable[[int, int], None]) -> LoadedModel | EmbeddingModel:
        """Raises BadModel."""
        directory, card = Path(self._deps.configure.model_path), self._shard.model_card
        cores = self._cores or cores_here(self.options.cores)
        limit = self.options.context_token_limit
        embeds = "TextEmbedding" in card.tasks
        if embeds and self.group.size > 1:
            raise BadModel(f"{card.model_id} is an embedding model, which one rank runs alone")
        if embeds and is_encoder(directory):
            return load_encoder(
                directory, card, context_limit=limit, cores=cores, on_layer=on_layer
            )
        loaded = load(
            directory,
            card,
            part=ShardRange(self.group, self._shard.start_layer, self._shard.end_layer),
            trust_remote_code=self.options.trust_remote_code,
            on_layer=on_layer,
            cores=cores,
            float32=self.options.float32,
            render=self._render,
        )
        return from_decoder(directory, loaded, limit) if embeds else loaded

    def warm_up(self, task: BaseTask, engine: Engine | EmbeddingEngine) -> None:
        """All ranks generate a few tokens together."""
        deps, owner = self._deps, Owner(task.task_id)
        model_id = self._shard.model_card.model_id
        deps.recorder.point(
            "warmup",
            "warmup_start",
            owner=owner,
            memory=True,
            model_id=model_id,
            group_size=self.group.size,
        )
        with deps.recorder.span("prefill_barrier", "warmup_pre_generation_barrier", owner=owner):
            self._barrier()
        with deps.recorder.span(
            "warmup", "warmup_mlx_generate", owner=owner, memory=True, model_id=model_id
        ):
            if self._shard.should_timeout:
                time.sleep(self._shard.should_timeout)
            deps.faults.stall("wedge_warmup")
            tokens = engine.warm_up()
        with deps.recorder.span(
            "decode_barrier",
            "warmup_final_barrier",
            owner=owner,
            model_id=model_id,
            tokens_generated=tokens,
        ):
            self._barrier()

    def _barrier(self) -> None:
        with self._deps.recorder.wait("mx_barrier", entry="never"):
            self.group.barrier()

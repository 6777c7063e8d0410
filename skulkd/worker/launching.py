"""What a runner is started with: model files, options, environment, log file.

Asks the disk, in threads and with limits. Knows no processes.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import skulkd
from skulkd.machine.accelerator_nvidia import Gpu
from skulkd.placement.records import record_of, shape_of
from skulkd.placement.shape import float32_growth
from skulkd.runner.protocol import Configure, JacclLinks, RankLinks
from skulkd.wire.ids import NodeId, RunnerId
from skulkd.wire.instances import Instance, MlxJacclInstance
from skulkd.wire.machine import MemoryUsage
from skulkd.worker.environment import runner_environ
from skulkd.worker.gpu import GpuUnavailable, RunnerGpu
from skulkd.worker.group_keys import RankSecurity
from skulkd.worker.group_ports import (
    NoAddress,
    coordinator,
    dial_list,
    listen_addresses,
    rank_0_list,
    ring_address,
)
from skulkd.worker.guard import Pool, shortage, wait_for_room
from skulkd.worker.log_files import log_path, prune_logs
from skulkd.worker.model_files import FilesUnavailable, ModelFiles
from skulkd.worker.options import WorkerOptions
from skulkd.worker.process import Launch
from skulkd.worker.waiting import WaitingView

log = logging.getLogger(__name__)


class CannotLaunch(Exception):
    """There is no point in starting a process. `str()` says why."""

    def __init__(self, why: str, *, later: bool = False) -> None:
        super().__init__(why)
        self.later = later
        """Whether it may be different in a moment."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything a process is started with."""

    configure: Configure
    launch: Launch

    def in_group(
        self, instance: Instance, attempt: int, ports: Sequence[int], security: RankSecurity | None
    ) -> "Prepared":
        """The same with the addresses of all ranks and the attempt's key. Raises CannotLaunch."""
        rank = self.configure.shard.device_rank
        if security is None:
            raise CannotLaunch("this node has no cluster secret to authenticate its ranks with")
        try:
            update: dict[str, object] = {
                "links": RankLinks(
                    key=security.key(instance.instance_id, attempt),
                    addresses=listen_addresses(instance, rank),
                    ring_address=ring_address(instance, rank),
                    tls=security.tls,
                )
            }
            if isinstance(instance, MlxJacclInstance):
                update["jaccl"] = JacclLinks(
                    devices=instance.jaccl_devices,
                    coordinator=coordinator(instance, rank, ports),
                )
                update["group"] = rank_0_list(instance, rank, ports)
            else:
                own = ring_address(instance, rank)
                update["group"] = dial_list(instance, rank, own, ports)
        except NoAddress as error:
            raise CannotLaunch(str(error)) from error
        return Prepared(self.configure.model_copy(update=update), self.launch)


class Launcher:
    """Prepares starts."""

    def __init__(
        self,
        node_id: NodeId,
        files: ModelFiles,
        memory: Callable[[], MemoryUsage],
        gpu: RunnerGpu | None,
        log_dir: Path,
        options: WorkerOptions,
        environ: Mapping[str, str],
    ) -> None:
        self._node_id = node_id
        self._files = files
        self._memory = memory
        self._gpu = gpu
        self._log_dir = log_dir
        self._options = options
        self._environ = environ

    async def prepare(
        self, instance: Instance, runner_id: RunnerId, waiting: WaitingView
    ) -> Prepared:
        """May take as long as the files take to come. Raises CannotLaunch."""
        shard = instance.shard_assignments.runner_to_shard[runner_id]
        waiting.begin("files", progress=lambda: self._files.progress(shard))
        try:
            model_path = await self._files.ensure_files(shard)
        except FilesUnavailable as error:
            raise CannotLaunch(f"{error.code}: {error}", later=error.later) from error
        gpu, float32 = await self._check_memory(instance, runner_id, waiting)
        await asyncio.to_thread(prune_logs, self._log_dir, self._options.log)
        options = self._options.runner.model_copy(update={"float32": float32})
        if instance.context_token_limit is not None:
            # A limit of 0 means that nothing fits; with 1 every prompt is refused as too long.
            limit = max(1, instance.context_token_limit)
            options = options.model_copy(update={"context_token_limit": limit})
        configure = Configure(
            node_id=self._node_id,
            runner_id=runner_id,
            instance_id=instance.instance_id,
            model_path=str(model_path),
            shard=shard,
            options=options,
        )
        return Prepared(configure, self._launch(runner_id, gpu))

    async def _check_memory(
        self, instance: Instance, runner_id: RunnerId, waiting: WaitingView
    ) -> tuple[Gpu | None, bool]:
        """Wait for room where the weights go. Raises CannotLaunch.

        The GPU that they go to, and whether they are unpacked: as it was planned, unless the
        memory for it is gone.
        """
        unpack = self._is_unpacked(instance, runner_id)
        waiting.begin("memory")
        try:
            gpu = None if self._gpu is None else await self._gpu.read()
            short = await wait_for_room(
                instance,
                runner_id,
                self._pool,
                self._options.patience.memory_s,
                lambda missing: waiting.begin("memory", detail=missing),
                as_stored=not unpack,
            )
            if unpack and short is not None:
                log.warning("weights stay packed, there is no room for them as float32: %s", short)
                unpack = False
                short = shortage(instance, runner_id, await self._pool(), as_stored=True)
        except GpuUnavailable as error:
            raise CannotLaunch(str(error), later=True) from error
        if short is not None:
            raise CannotLaunch(short)
        return gpu, unpack

    def _is_unpacked(self, instance: Instance, runner_id: RunnerId) -> bool:
        """Whether it was planned so, and the settings have not changed since."""
        shard = instance.shard_assignments.runner_to_shard[runner_id]
        planned = record_of(instance).unpacked
        unpackable = float32_growth(shard.model_card, shape_of(instance)) is not None
        if self._options.dequantize == "on" and unpackable and not planned:
            log.warning(
                "runtime.dequantize is on here, but the weights of %s stay packed: when it was"
                " placed, not every node had room for them as float32, or one did not allow it",
                shard.model_card.model_id,
            )
        return planned and self._options.dequantize != "off"

    async def _pool(self) -> Pool:
        """The memory of the GPU, where MLX uses one that has its own. Raises GpuUnavailable."""
        if self._gpu is not None:
            metrics = (await self._gpu.read()).metrics
            if metrics.vram_total_bytes:
                return metrics
        return await asyncio.to_thread(self._memory)

    def _launch(self, runner_id: RunnerId, gpu: Gpu | None) -> Launch:
        package_root = Path(skulkd.__file__).parents[1]
        return Launch(
            environ=runner_environ(self._environ, package_root, gpu),
            log_file=log_path(self._log_dir, runner_id),
            log_limits=self._options.log,
        )

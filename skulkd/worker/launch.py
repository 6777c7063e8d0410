"""Prepares the start of a runner process: model files, memory, options, environment, log file.

Starts nothing. Whatever reads the disk or a device runs in threads and has a time limit.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import skulkd
from skulkd.machine.accelerator_nvidia import VISIBLE, Gpu, choose_gpu, read_nvidia
from skulkd.machine.flight import Collector
from skulkd.machine.rdma import device_problems
from skulkd.placement.records import record_of, shape_of
from skulkd.placement.shape import float32_growth
from skulkd.runner.protocol import Configure, JacclLinks, RankLinks
from skulkd.wire.ids import NodeId, RunnerId
from skulkd.wire.instances import Instance, MlxJacclInstance
from skulkd.wire.machine import MemoryUsage
from skulkd.wire.topology import RdmaConnection, Topology
from skulkd.worker.diagnostics import WaitStatus
from skulkd.worker.group_addresses import (
    NoAddress,
    RankSecurity,
    listen_addresses,
    nodes_by_rank,
    rdma_coordinator,
    rdma_hosts,
    ring_address,
    ring_hosts,
)
from skulkd.worker.log_files import log_path, prune_logs
from skulkd.worker.memory_check import MemoryPool, shortage, wait_for_memory
from skulkd.worker.model_files import FilesUnavailable, ModelFiles
from skulkd.worker.options import WorkerOptions
from skulkd.worker.process import Launch

_log = logging.getLogger(__name__)
_GPU_DEADLINE_S = 10.0
# Only the daemon needs these; a process cannot leak what it does not have.
_SECRETS = frozenset({"SKULK_CLUSTER_SECRET", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})


class CannotLaunch(Exception):
    """The process must not be started. `str()` says why."""

    def __init__(self, why: str, *, retryable: bool = False) -> None:
        super().__init__(why)
        self.retryable = retryable
        """Whether another try may succeed without an operator."""


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
            own = ring_address(instance, rank)
            update: dict[str, object] = {
                "links": RankLinks(
                    key=security.key(instance.instance_id, attempt),
                    addresses=listen_addresses(instance, rank),
                    ring_address=own,
                    tls=security.tls,
                )
            }
            if isinstance(instance, MlxJacclInstance):
                update["jaccl"] = JacclLinks(
                    devices=instance.jaccl_devices,
                    coordinator=rdma_coordinator(instance, rank, ports),
                )
                update["group"] = rdma_hosts(instance, rank, ports)
            else:
                update["group"] = ring_hosts(instance, rank, own, ports)
        except NoAddress as error:
            raise CannotLaunch(str(error)) from error
        return Prepared(self.configure.model_copy(update=update), self.launch)


class Launcher:
    """`prepare` a start. `gpu` is set where MLX is built for CUDA."""

    def __init__(
        self,
        node_id: NodeId,
        files: ModelFiles,
        memory: Callable[[], MemoryUsage],
        gpu: "RunnerGpu | None",
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

    async def prepare(self, instance: Instance, runner_id: RunnerId, wait: WaitStatus) -> Prepared:
        """Takes as long as the files need to arrive. Raises CannotLaunch."""
        shard = instance.shard_assignments.runner_to_shard[runner_id]
        wait.begin("files", progress=lambda: self._files.progress(shard))
        try:
            model_path = await self._files.ensure_files(shard)
        except FilesUnavailable as error:
            raise CannotLaunch(f"{error.code}: {error}", retryable=error.retryable) from error
        gpu, float32 = await self._check_memory(instance, runner_id, wait)
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
        self, instance: Instance, runner_id: RunnerId, wait: WaitStatus
    ) -> tuple[Gpu | None, bool]:
        """Wait for memory. Raises CannotLaunch.

        The GPU that the weights go to, and whether they are unpacked to float32: as planned,
        unless there is no longer enough memory for that.
        """
        unpack = self._is_unpacked(instance, runner_id)
        wait.begin("memory")
        try:
            gpu = None if self._gpu is None else await self._gpu.read()
            short = await wait_for_memory(
                instance,
                runner_id,
                self._read_pool,
                self._options.timeouts.memory_s,
                lambda missing: wait.begin("memory", detail=missing),
                as_stored=not unpack,
            )
            if unpack and short is not None:
                _log.warning("weights stay packed, not enough memory for float32: %s", short)
                unpack = False
                short = shortage(instance, runner_id, await self._read_pool(), as_stored=True)
        except GpuUnavailable as error:
            raise CannotLaunch(str(error), retryable=True) from error
        if short is not None:
            raise CannotLaunch(short)
        return gpu, unpack

    def _is_unpacked(self, instance: Instance, runner_id: RunnerId) -> bool:
        """Whether it was planned so, and the settings have not changed since."""
        shard = instance.shard_assignments.runner_to_shard[runner_id]
        planned = record_of(instance).unpacked
        unpackable = float32_growth(shard.model_card, shape_of(instance)) is not None
        if self._options.dequantize == "on" and unpackable and not planned:
            _log.warning(
                "runtime.dequantize is on here, but the weights of %s stay packed: when it was"
                " placed, not every node had memory for them as float32, or one did not allow it",
                shard.model_card.model_id,
            )
        return planned and self._options.dequantize != "off"

    async def _read_pool(self) -> MemoryPool:
        """The memory of the GPU, if MLX uses one with its own memory. Raises GpuUnavailable."""
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


def runner_environ(
    environ: Mapping[str, str], package_root: Path, gpu: Gpu | None = None
) -> dict[str, str]:
    """The daemon's environment without secrets, with what the runner needs. Pure.

    `package_root` holds our package: the runner must run the same code as its daemon. A GPU is
    named by its UUID, because CUDA may number GPUs in another order.
    """
    kept = {name: value for name, value in environ.items() if name not in _SECRETS}
    path = [str(package_root), *filter(None, [kept.get("PYTHONPATH")])]
    own = {"PYTHONPATH": ":".join(path), "PYTHONUNBUFFERED": "1"}
    return {**kept, **({} if gpu is None else {VISIBLE: gpu.uuid}), **own}


class GpuUnavailable(Exception):
    """There is no GPU to load a model on. `str()` says why."""


class RunnerGpu:
    """Reads the NVIDIA GPU of this node: the one in `CUDA_VISIBLE_DEVICES`, else the largest.

    MLX uses one GPU per process, and all runners of a node use the same one: the planner counts
    its memory. Another GPU of the machine needs a daemon of its own.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        def read() -> Gpu | None:
            return choose_gpu(read_nvidia().gpus, environ.get(VISIBLE))

        self._collector = Collector("GPU", read, deadline_s=_GPU_DEADLINE_S)

    async def read(self) -> Gpu:
        """Raises GpuUnavailable."""
        outcome = await self._collector.ask()
        gpu: Gpu | None = outcome.value
        if gpu is None:
            why = outcome.problem or "no NVIDIA GPU was found, and MLX is built for CUDA here"
            raise GpuUnavailable(why)
        return gpu


async def check_rdma_links(instance: Instance, rank: int, topology: Topology) -> None:
    """Check the RDMA devices of this rank, because MLX would only hang. Raises CannotLaunch.

    The links of a TCP ring are checked by the ranks themselves.
    """
    if not isinstance(instance, MlxJacclInstance):
        return
    devices = sorted({name for name in instance.jaccl_devices[rank] if name is not None})
    problems = moved_cables(instance, rank, topology)
    problems += await asyncio.to_thread(device_problems, devices)
    if problems:
        why = f"RDMA does not work on this node: {'; '.join(problems)}"
        raise CannotLaunch(why, retryable=True)


def moved_cables(instance: MlxJacclInstance, rank: int, topology: Topology) -> list[str]:
    """Devices that now lead to another node, where that is known. Pure."""
    nodes = nodes_by_rank(instance)
    leads_to = {
        edge.source_rdma_iface: sink
        for sink, edges in topology.connections.get(nodes[rank], {}).items()
        for edge in edges
        if isinstance(edge, RdmaConnection)
    }
    return [
        f"{device} leads to {leads_to[device]}, not to {node} any more: the cables have changed"
        " since the model was placed; delete the instance and place it again"
        for device, node in zip(instance.jaccl_devices[rank], nodes, strict=True)
        if device is not None and leads_to.get(device, node) != node
    ]

"""What a runner is started with: model files, options, environment, log file.

Asks the disk, in threads and with limits. Knows no processes.
"""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import skulkd
from skulkd.runner.protocol import Configure
from skulkd.wire.ids import ModelId, NodeId, RunnerId
from skulkd.wire.instances import Instance
from skulkd.worker.blas import BlasChoice, choose_blas
from skulkd.worker.environment import runner_environ
from skulkd.worker.log_files import log_path, prune_logs
from skulkd.worker.options import WorkerOptions
from skulkd.worker.process import Launch


class Library(Protocol):
    """The models on this machine's disk. Both may block."""

    def find(self, model_id: ModelId) -> Path | None: ...

    def problem(self, model_id: ModelId) -> str | None: ...


class CannotLaunch(Exception):
    """There is no point in starting a process. `str()` says why."""

    def __init__(self, why: str, *, later: bool = False) -> None:
        super().__init__(why)
        self.later = later
        """Whether it may be different in a moment."""


class Launcher:
    """Prepares starts. `blas` is known once it was looked for."""

    def __init__(
        self,
        node_id: NodeId,
        library: Library,
        log_dir: Path,
        options: WorkerOptions,
        environ: Mapping[str, str],
    ) -> None:
        self._node_id = node_id
        self._library = library
        self._log_dir = log_dir
        self._options = options
        self._environ = environ
        self.blas: BlasChoice | None = None

    async def prepare(self, instance: Instance, runner_id: RunnerId) -> tuple[Configure, Launch]:
        """Raises CannotLaunch."""
        shard = instance.shard_assignments.runner_to_shard[runner_id]
        if shard.world_size != 1:
            raise CannotLaunch("instances over several nodes are not served by this version")
        limit_s = self._options.patience.find_model_s
        try:
            async with asyncio.timeout(limit_s):
                model_path = await asyncio.to_thread(self._look, shard.model_card.model_id)
        except TimeoutError as error:
            why = f"the models directory did not answer within {limit_s:g} s"
            raise CannotLaunch(why, later=True) from error
        options = self._options.runner
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
        return configure, self._launch(runner_id)

    def _look(self, model_id: ModelId) -> Path:
        """The slow part: asks the disk and, once, the system's loader."""
        path = self._library.find(model_id)
        if path is None:
            problem = self._library.problem(model_id)
            raise CannotLaunch(problem or f"{model_id} has no files on this node")
        prune_logs(self._log_dir, self._options.log)
        self.find_blas()
        return path

    def find_blas(self) -> None:
        """Blocking: asks the disk, once. Python's own search would start a compiler."""
        if self.blas is None:
            self.blas = choose_blas(
                self._options.blas,
                system=sys.platform,
                accelerated=self._options.accelerated,
            )

    def _launch(self, runner_id: RunnerId) -> Launch:
        blas = self.blas or BlasChoice(None, "not looked for")
        package_root = Path(skulkd.__file__).parents[1]
        return Launch(
            environ=runner_environ(self._environ, blas, package_root),
            log_file=log_path(self._log_dir, runner_id),
            log_limits=self._options.log,
            blas=str(blas),
        )

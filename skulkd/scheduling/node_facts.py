"""What this node reports about itself when a model is to be placed: files, backends, settings."""

from __future__ import annotations

from skulkd.machine.mlx_build import mlx_build
from skulkd.placement.orders import NodeFacts
from skulkd.scheduling.placements import OwnFacts
from skulkd.settings.running import RunningSettings
from skulkd.store.local_models import LocalModels
from skulkd.worker.options import worker_options

PARTICIPATION = "SKULK_NODE_PARTICIPATION"


def own_facts(models: LocalModels, settings: RunningSettings) -> OwnFacts:
    """Facts of this node. With a model store the files need not be here."""
    dequantize = worker_options(settings.started.config.runtime).dequantize

    async def facts(model_id: str) -> NodeFacts:
        problem = await models.why_not_here(model_id)
        store = settings.started.config.model_store
        has_store = store is not None and store.enabled
        return NodeFacts(
            files_problem=None if has_store else problem,
            staged=1.0 if problem is None else None,
            backends=["mlx", f"mlx-{mlx_build()}"],
            participation=settings.sources.environ.get(PARTICIPATION, "").strip() or "full",
            dequantize=dequantize,
        )

    return facts

"""What this node says of itself when a model is to be placed: files, backends, settings."""

from __future__ import annotations

from skulkd.api.model_shelf import ModelShelf
from skulkd.api.placing import Tell, own_backends
from skulkd.api.running_settings import RunningSettings
from skulkd.placement.orders import NodeNews
from skulkd.worker.from_settings import worker_options

PARTICIPATION = "SKULK_NODE_PARTICIPATION"


def teller(models: ModelShelf, settings: RunningSettings) -> Tell:
    """Answers for this node. With a model store the files need not be here."""
    dequantize = worker_options(settings.started.config.runtime).dequantize

    async def tell(model_id: str) -> NodeNews:
        problem = await models.why_not_here(model_id)
        store = settings.started.config.model_store
        has_store = store is not None and store.enabled
        return NodeNews(
            files_problem=None if has_store else problem,
            staged=1.0 if problem is None else None,
            backends=own_backends(),
            participation=settings.sources.environ.get(PARTICIPATION, "").strip() or "full",
            dequantize=dequantize,
        )

    return tell

"""Which resource each listing command shows; for completion and the reference page."""

from __future__ import annotations

from skulkctl.chat.load_curve import CURVE
from skulkctl.commands.context import CONTEXTS
from skulkctl.doctor.checklist import CHECKS
from skulkctl.models.rows import MODELS
from skulkctl.nodes.rows import NODES
from skulkctl.output.tables import Resource
from skulkctl.placement.instances import INSTANCES
from skulkctl.placement.previews import PREVIEWS
from skulkctl.settings.rows import PROBLEMS, SETTINGS
from skulkctl.storage.rows import STORAGE
from skulkctl.storage.store import STORE
from skulkctl.tokens.rows import TOKENS
from skulkctl.traces.rows import STATS, TRACES

RESOURCES: dict[str, Resource] = {
    "nodes list": NODES,
    "instances": INSTANCES,
    "models": MODELS,
    "preview": PREVIEWS,
    "storage": STORAGE,
    "store": STORE,
    "doctor": CHECKS,
    "trace list": TRACES,
    "trace stats": STATS,
    "bench": CURVE,
    "config show": SETTINGS,
    "config validate": PROBLEMS,
    "context list": CONTEXTS,
    "token list": TOKENS,
}

"""Everything of this node's API that other nodes may ask for, registered in one place."""

from __future__ import annotations

from skulkd.api.admin import serve_restart
from skulkd.api.cancel import serve_cancel
from skulkd.api.capture import serve_capture
from skulkd.api.cluster import serve_hello
from skulkd.api.diagnostics import serve_diagnostics
from skulkd.api.load import serve_load
from skulkd.api.logs import serve_logs
from skulkd.api.restarting import serve_instance_restart
from skulkd.api.runner_cancel import serve_runner_cancel
from skulkd.api.services import Services
from skulkd.api.task_relay import serve_tasks
from skulkd.api.timeline import serve_timeline
from skulkd.api.traces import serve_traces


def serve_peers(node: Services) -> None:
    """From now on other nodes may use this one."""
    serve_tasks(node.peers, node.inference.worker)
    serve_cancel(node)
    serve_runner_cancel(node)
    serve_instance_restart(node)
    serve_diagnostics(node)
    serve_timeline(node)
    serve_capture(node)
    serve_logs(node)
    serve_traces(node)
    serve_restart(node)
    serve_hello(node)
    serve_load(node)

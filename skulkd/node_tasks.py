"""The long-running tasks of a node: all of them, under the one supervisor."""

from __future__ import annotations

import asyncio

from skulkd.api.lifecycle import Lifecycle
from skulkd.api.services import Services
from skulkd.cluster.fabric import FabricError
from skulkd.log import LogSystem
from skulkd.node_cluster import keep_links, run_cluster
from skulkd.node_rooms import Rooms
from skulkd.node_start import Start
from skulkd.supervision import Supervised, keep_threads

CLUSTER = "cluster"


def start_tasks(
    rooms: Rooms, start: Start, services: Services, logs: LogSystem | None = None
) -> asyncio.Event:
    """Start everything that runs until the daemon stops. Set when the machine was read once."""
    tasks, first = rooms.tasks, asyncio.Event()
    lifecycle = services.lifecycle
    tasks.on_change(lambda one, problem: _tell(rooms, lifecycle, one, problem))
    tasks.on_giving_up(lifecycle.ask_stop)
    tasks.start("readings", lambda: rooms.report.keep_reading(lifecycle, first), essential=True)
    tasks.start("event loop lag", services.metrics.watch_loop)
    if start.worker:
        tasks.start("worker", rooms.worker.run, essential=True)
    tasks.start(
        CLUSTER,
        lambda: run_cluster(rooms.cluster, start),
        essential=True,
        external=(OSError, FabricError),
    )
    tasks.start("links", lambda: keep_links(rooms.cluster, start))
    tasks.start("traces", lambda: rooms.observe.traces.keep_tidy(start.settings))
    tasks.start("reach", rooms.reach.run)
    tasks.start("certificates", start.tls.watch.run)
    for name, work in rooms.store.tasks().items():
        tasks.start(name, work)
    tasks.start("gateway node", services.swarm.service.run)
    threads = {**rooms.observe.threads(), **(logs.threads() if logs is not None else {})}
    tasks.start("threads", lambda: keep_threads(threads))
    return first


def _tell(rooms: Rooms, lifecycle: Lifecycle, one: Supervised, problem: str) -> None:
    """Readiness depends on essential tasks only; all of them are in the node's health."""
    if one.name == CLUSTER:
        rooms.cluster.down = problem
    if not one.essential:
        return
    part = f"background task {one.name}"
    if problem:
        lifecycle.mark_failed(part, f"it is down and is being restarted ({problem})")
    else:
        lifecycle.mark_ready(part)

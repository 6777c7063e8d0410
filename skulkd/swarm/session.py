"""An enrolled node at work: heartbeats, and one poll at a time that brings jobs.

Ends when it is cancelled. Jobs that run then go on for the grace of the stop; jobs that are not
done are on disk, and the gateway gets a failed result for them at the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from skulkd.swarm.active_jobs import ActiveJobs, GatewayDeps
from skulkd.swarm.capabilities import capability_block
from skulkd.swarm.catalog import catalog_entry
from skulkd.swarm.errors import GatewayError, as_gateway_error
from skulkd.swarm.gateway import GONE, Gateway
from skulkd.swarm.job_checks import Job, polled_job
from skulkd.swarm.node_config import NodeConfig
from skulkd.swarm.telemetry import (
    Discovery,
    Report,
    hardware_pressure,
    heartbeat_body,
    heartbeat_report,
    load_telemetry,
    poll_capacity,
)

WAIT_MS = 25_000
"""How long a gateway is asked to hold a poll until there is a job."""
IDLE_POLL_S = 0.5
"""Between two polls that brought no work."""
RETIRED_HEARTBEAT_S = 15 * 60.0
NO_POLL = frozenset({"retired", "draining", "busy", "stopping"})
_FIRST_RETRY_MS = 1000
_MAX_RETRY_MS = 60_000
log = logging.getLogger(__name__)


def retry_delay_ms(failures: int) -> int:
    """After so many failures in a row: doubling, at most a minute."""
    if failures <= 0:
        return 0
    return min(_FIRST_RETRY_MS << min(failures - 1, 16), _MAX_RETRY_MS)


async def wait_for_first(sleep: Awaitable[None], event: asyncio.Event) -> None:
    """Until the sleep is over or the event is set."""
    tasks = {asyncio.ensure_future(sleep), asyncio.ensure_future(event.wait())}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


@dataclass(slots=True)
class SessionStatus:
    """The state of the calls to the gateway, for operators."""

    last_heartbeat: str | None = None
    heartbeat_error: str | None = None
    poll_error: str | None = None
    poll_failures: int = 0
    """In a row."""
    retired: bool = False


class GatewaySession:
    """One enrolment being served."""

    def __init__(
        self,
        deps: GatewayDeps,
        config: NodeConfig,
        gateway: Gateway,
        config_version: int | None = None,
        runs_elsewhere: Callable[[str], bool] = lambda _job_id: False,
    ) -> None:
        self._deps = deps
        self._config = config
        self._config_version = config_version
        self._gateway = gateway
        self._changed = asyncio.Event()
        self._heartbeat_now = asyncio.Event()
        self._stopping = False
        self._empty_poll_at: float | None = None
        """When a poll last brought nothing."""
        self.status = SessionStatus()
        self.jobs = ActiveJobs(deps, config, gateway, runs_elsewhere, self._changed.set)

    def notify(self) -> None:
        """Drain or models have changed: send a heartbeat at once."""
        self._heartbeat_now.set()
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        interrupted = await asyncio.to_thread(self._deps.records.fail_interrupted)
        if interrupted:
            log.warning("%d jobs were interrupted by the last end of this node", interrupted)
        # The first poll waits for the first heartbeat, also for one that fails.
        await self._beat()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send_heartbeats())
            if self._config.relay_mode == "outbound":
                group.create_task(self._poll_for_jobs())

    async def stop(self, grace_s: float, abort_s: float = 0.0) -> None:
        """Poll no more and let jobs finish; those that do not are cancelled."""
        self._stopping = True
        self._changed.set()
        await self.jobs.stop(grace_s, abort_s)

    # Heartbeats

    async def heartbeat(self) -> Report:
        """One, now. Raises GatewayError."""
        deps, config = self._deps, self._config
        discovery = self._discover()
        now = deps.clocks.wall()
        block = capability_block(config.node_id, deps.probe(config), self._gateway.token(), now)
        hardware = hardware_pressure(deps.machine(), block, now)
        telemetry = load_telemetry(
            config, deps.counters, discovery, draining=deps.draining(), hardware=hardware
        )
        versions = (deps.version, self._config_version)
        body = heartbeat_body(config, versions, discovery, telemetry, block, now)
        response = await self._gateway.heartbeat(body)
        self.status.last_heartbeat = body["health"]["last_success_at"]
        return heartbeat_report(discovery, telemetry, response)

    def _discover(self) -> Discovery:
        clock = self._deps.clocks.monotonic
        began = clock()
        exposure = self._config.exposure
        try:
            models = [catalog_entry(agent, exposure) for agent in self._deps.agents()]
        except Exception as error:  # noqa: BLE001 - the heartbeat reports the node as degraded
            log.warning("the models of this cluster cannot be listed: %s", error)
            return Discovery([], round((clock() - began) * 1000), failures=1)
        return Discovery(models, round((clock() - began) * 1000))

    async def _beat(self) -> None:
        status = self.status
        try:
            await self.heartbeat()
        except Exception as error:  # noqa: BLE001 - any failure is reported and tried again
            self._heartbeat_failed(as_gateway_error(error, "the heartbeat"))
            return
        if status.retired or status.heartbeat_error:
            log.info("the gateway accepts heartbeats again")
        status.retired = False
        status.heartbeat_error = None
        status.poll_failures = 0
        self._changed.set()
        await self.jobs.deliver_owed()

    def _heartbeat_failed(self, error: GatewayError) -> None:
        if self.status.heartbeat_error != str(error):
            log.warning("heartbeat failed: %s", error)
        self.status.heartbeat_error = str(error)
        if error.status == GONE:
            self.status.retired = True

    async def _send_heartbeats(self) -> None:
        while True:
            interval_s = self._config.heartbeat_interval_seconds
            pause_s = RETIRED_HEARTBEAT_S if self.status.retired else interval_s
            await wait_for_first(self._deps.sleep(pause_s), self._heartbeat_now)
            self._heartbeat_now.clear()
            await self._beat()

    # Polls

    def poll_state(self) -> str:
        """Why the node polls or does not."""
        if self._stopping:
            return "stopping"
        if self.status.retired:
            return "retired"
        if self._deps.draining() or self._config.drain_mode:
            return "draining"
        if len(self.jobs) >= self._config.llm_slots:
            return "busy"
        return "backing off" if self.status.poll_failures else "polling"

    async def _poll_for_jobs(self) -> None:
        while True:
            self._changed.clear()
            if self.poll_state() in NO_POLL:
                await self._changed.wait()
                continue
            delay_ms = retry_delay_ms(self.status.poll_failures)
            if delay_ms:
                await wait_for_first(self._deps.sleep(delay_ms / 1000), self._changed)
                self._changed.clear()
            await self._wait_after_empty_poll()
            if self.poll_state() not in NO_POLL:
                await self._poll_once()

    async def _wait_after_empty_poll(self) -> None:
        """A gateway that answers polls at once and brings no work is polled twice a second."""
        times = [at for at in (self._empty_poll_at, self.jobs.not_run_at) if at is not None]
        self._empty_poll_at = self.jobs.not_run_at = None
        rest_s = max(times, default=0.0) + IDLE_POLL_S - self._deps.clocks.monotonic()
        if times and rest_s > 0:
            await self._deps.sleep(rest_s)

    async def _poll_once(self) -> None:
        began = self._deps.clocks.monotonic()
        try:
            found = await self._poll_until_stopped()
        except Exception as error:  # noqa: BLE001 - any failure is reported and tried again
            self._poll_failed(as_gateway_error(error, "the poll"))
            return
        self.status.poll_failures = 0
        self.status.poll_error = None
        # A job that arrives during a stop is not acknowledged, so the gateway leases it again.
        if found is None or self._stopping or not self.jobs.begin(*found):
            self._empty_poll_at = began

    async def _poll_until_stopped(self) -> tuple[Job, str | None] | None:
        """The gateway holds a poll for long; a drain or a stop ends it at once."""
        polling = asyncio.ensure_future(self.poll())
        try:
            while not polling.done() and self.poll_state() not in NO_POLL:
                changed = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait({polling, changed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                self._changed.clear()
            return polling.result() if polling.done() else None
        finally:
            polling.cancel()

    async def poll(self) -> tuple[Job, str | None] | None:
        """A job and the key that came with it. Raises GatewayError."""
        deps = self._deps
        telemetry = load_telemetry(self._config, deps.counters, draining=deps.draining())
        body = {
            "node_id": self._config.node_id,
            "capacity": poll_capacity(telemetry),
            "wait_ms": WAIT_MS,
        }
        timeout_s = max(self._config.request_timeout_ms / 1000, WAIT_MS / 1000 + 5.0)
        return polled_job(await self._gateway.poll(body, timeout_s))

    def _poll_failed(self, error: GatewayError) -> None:
        self.status.poll_failures += 1
        if self.status.poll_error != str(error):
            log.warning("poll failed: %s", error)
        self.status.poll_error = str(error)
        if error.status == GONE:
            self.status.retired = True

"""Results on their way to the gateway: tried again, owed over restarts, or refused for good."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from skulkd.swarm.errors import GatewayError
from skulkd.swarm.job_book import JobBook, Refusal
from skulkd.swarm.pacing import REFUSED_FOR_GOOD, RESULT_RETRIES_MS

Result = Mapping[str, Any]
log = logging.getLogger(__name__)


@dataclass(slots=True)
class ResultDelivery:
    """Delivers the results of one session. `post` raises GatewayError."""

    post: Callable[[str, Result], Awaitable[None]]
    book: JobBook
    now: Callable[[], str]
    sleep: Callable[[float], Awaitable[None]]
    _posting: set[str] = field(default_factory=set)

    async def keep(self, result: Result) -> None:
        """On disk before it is posted. A full disk costs the safety, not the result."""
        try:
            await asyncio.to_thread(self.book.finished, result)
        except OSError as error:
            log.warning("the result of job %s cannot be stored: %s", result["job_id"], error)

    async def deliver(self, result: Result) -> None:
        """Four attempts. Raises GatewayError after the last."""
        for pause_ms in (*RESULT_RETRIES_MS, None):
            try:
                await self._post(result)
            except GatewayError:
                if pause_ms is None:
                    raise
                await self.sleep(pause_ms / 1000)
            else:
                return

    async def deliver_owed(self, running: Callable[[str], bool]) -> None:
        """Results that could not be delivered before, except of jobs that deliver themselves."""
        for job_id in self.book.owed():
            if running(job_id) or job_id in self._posting:
                continue
            result = await asyncio.to_thread(self.book.result_of, job_id)
            if result is None:
                await asyncio.to_thread(self.book.forget, job_id)
                continue
            try:
                await self._post(result)
            except GatewayError as error:
                log.warning("the result of job %s was not delivered: %s", job_id, error)
                if error.status is None:
                    return  # the gateway does not answer; the others would fail as well

    async def _post(self, result: Result) -> None:
        """One attempt. A refusal for good counts as settled. Raises GatewayError."""
        job_id = str(result["job_id"])
        self._posting.add(job_id)
        refusal: Refusal | None = None
        try:
            await self.post(job_id, result)
        except GatewayError as error:
            if error.status is None or error.status not in REFUSED_FOR_GOOD:
                raise
            log.warning("the gateway refused the result of job %s for good: %s", job_id, error)
            refusal = Refusal(error.status, self.now(), str(error))
        finally:
            self._posting.discard(job_id)
        try:
            await asyncio.to_thread(self._settle, job_id, refusal)
        except OSError as error:
            log.warning("job %s cannot be marked as delivered: %s", job_id, error)

    def _settle(self, job_id: str, refusal: Refusal | None) -> None:
        if refusal is None:
            self.book.delivered(job_id)
        else:
            self.book.refused(job_id, refusal)

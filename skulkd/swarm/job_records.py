"""The jobs of this node on disk: started, finished with an owed result, delivered, refused.

A result is on disk before it is posted and stays until the gateway has it, so a kill loses
nothing. Of a delivered job only the id is kept, against a second run of the same job.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from skulkd.settings.files import make_private_dir, write_atomic
from skulkd.swarm.js_values import sha256_hex

KEPT_DELIVERED = 256
KEPT_OWED = 1024
KEPT_REFUSED = 32

JobStage = Literal["started", "finished", "delivered", "refused"]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ResultRefusal:
    """A result that the gateway will never take."""

    status: int
    at: str
    message: str


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job. Results stay on disk: many of them may be owed."""

    job_id: str
    stage: JobStage
    node_id: str
    request_id: str | None
    pre_start: bool = False
    """The job never began here, so it may come again."""
    refusal: ResultRefusal | None = None


class JobRecords:
    """The jobs of one gateway node. Blocking: small files, each written whole."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._records: dict[str, JobRecord] = {}
        for record in self._read_all():
            self._records[record.job_id] = record
        self._interrupted = [e.job_id for e in self._records.values() if e.stage == "started"]
        """Jobs of an earlier process; others that are started still run."""

    def stage_of(self, job_id: str) -> JobStage | None:
        record = self._records.get(job_id)
        return None if record is None else record.stage

    def may_run(self, job_id: str) -> bool:
        """Whether the job is new here, or comes again after it could not be started."""
        record = self._records.get(job_id)
        return record is None or (record.pre_start and record.stage != "started")

    def started(self, job: Mapping[str, Any]) -> None:
        self._write(_record(job, "started"))

    def finished(self, result: Mapping[str, Any]) -> None:
        """The result is owed from now on."""
        self._write(_record(result, "finished"), result)
        self._prune("finished", KEPT_OWED)

    def settled(self, job_id: str, refusal: ResultRefusal | None = None) -> None:
        """The gateway has the result, or refused it for good: then the reason is kept.

        A job that never began is forgotten when its result is delivered: it may come again.
        """
        record = self._records.get(job_id)
        if record is None:
            return
        if refusal is not None:
            self._write(replace(record, stage="refused", refusal=refusal))
            self._prune("refused", KEPT_REFUSED)
        elif record.pre_start:
            self.forget(job_id)
        else:
            self._write(JobRecord(job_id, "delivered", record.node_id, record.request_id))
            self._prune("delivered", KEPT_DELIVERED)

    def owed(self) -> list[str]:
        """Ids of jobs whose results the gateway does not have, oldest first."""
        return [record.job_id for record in self._records.values() if record.stage == "finished"]

    def refusals(self) -> dict[str, ResultRefusal]:
        """Why results were given up, by job, oldest first."""
        return {
            record.job_id: record.refusal
            for record in self._records.values()
            if record.refusal is not None
        }

    def result_of(self, job_id: str) -> dict[str, Any] | None:
        """The result that is owed, from disk; None when its file cannot be used any more."""
        try:
            body = json.loads(self._file(job_id).read_text(encoding="utf-8"))
            result = body["result"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            log.warning("the result of job %s cannot be read and is lost: %s", job_id, error)
            return None
        return result if isinstance(result, dict) else None

    def fail_interrupted(self) -> int:
        """Jobs that an earlier process left running get their result now; how many."""
        interrupted, self._interrupted = self._interrupted, []
        try:
            return self.fail(interrupted)
        except OSError:
            self._interrupted = interrupted
            raise

    def fail(self, job_ids: Iterable[str]) -> int:
        """The result of jobs that were started here and are not run any more; how many."""
        found = [self._records.get(job_id) for job_id in job_ids]
        interrupted = [
            record for record in found if record is not None and record.stage == "started"
        ]
        for record in interrupted:
            self.finished(
                {
                    "job_id": record.job_id,
                    "request_id": record.request_id,
                    "status": "failed",
                    "error": {
                        "code": "upstream_error",
                        "message": "the node stopped while the job ran",
                    },
                    "timing": {"local_latency_ms": 0},
                    "node_id": record.node_id,
                }
            )
        return len(interrupted)

    def forget(self, job_id: str) -> None:
        """It never began."""
        if self._records.pop(job_id, None) is not None:
            self._file(job_id).unlink(missing_ok=True)

    def clear(self) -> None:
        """The enrolment is over, and with it all that was owed."""
        for job_id in list(self._records):
            self.forget(job_id)

    def _write(self, record: JobRecord, result: Mapping[str, Any] | None = None) -> None:
        make_private_dir(self.directory)
        refusal = record.refusal
        body = {
            "job_id": record.job_id,
            "request_id": record.request_id,
            "node_id": record.node_id,
            "stage": record.stage,
            "pre_start": record.pre_start,
            "written": time.time_ns(),
            **({} if result is None else {"result": dict(result)}),
            **({} if refusal is None else {"refusal": asdict(refusal)}),
        }
        write_atomic(self._file(record.job_id), json.dumps(body).encode(), mode=0o600)
        self._records.pop(record.job_id, None)
        self._records[record.job_id] = record

    def _prune(self, stage: JobStage, kept: int) -> None:
        of_stage = [record for record in self._records.values() if record.stage == stage]
        for record in of_stage[: max(0, len(of_stage) - kept)]:
            if stage == "finished":
                log.warning(
                    "the result of job %s was never taken and is given up", record.job_id[:64]
                )
            self.forget(record.job_id)

    def _file(self, job_id: str) -> Path:
        # Job ids are the gateway's words and must not become paths.
        return self.directory / f"{sha256_hex(job_id)[:32]}.json"

    def _read_all(self) -> list[JobRecord]:
        found: list[tuple[int, JobRecord]] = []
        for file in sorted(self.directory.glob("*.json")):
            try:
                body = json.loads(file.read_text(encoding="utf-8"))
                found.append((int(body["written"]), _parse_record(body)))
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                log.warning("%s is no record of a job and is left alone: %s", file.name, error)
        return [record for _, record in sorted(found, key=lambda item: item[0])]


def _record(facts: Mapping[str, Any], stage: JobStage) -> JobRecord:
    request_id = facts.get("request_id")
    return JobRecord(
        str(facts.get("job_id")),
        stage,
        str(facts.get("node_id")),
        None if request_id is None else str(request_id),
        pre_start=facts.get("pre_start_failure") is True,
    )


def _parse_record(body: Mapping[str, Any]) -> JobRecord:
    result, refusal = body.get("result"), body.get("refusal")
    # Files of earlier versions tell it only in the result.
    never_began = isinstance(result, dict) and result.get("pre_start_failure") is True
    return JobRecord(
        body["job_id"],
        body["stage"],
        body["node_id"],
        body["request_id"],
        pre_start=never_began or body.get("pre_start") is True,
        refusal=None if refusal is None else ResultRefusal(**refusal),
    )

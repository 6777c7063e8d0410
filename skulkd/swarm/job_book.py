"""What became of jobs, on disk: started, finished with a result that is owed, delivered, refused.

A result is on disk before it is posted and stays until the gateway has it, so a kill loses
nothing. What was delivered leaves only its id behind, against a second run of the same job.
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
from skulkd.swarm.script_values import sha256_hex

KEPT_DELIVERED = 256
KEPT_OWED = 1024
KEPT_REFUSED = 32

Stage = Literal["started", "finished", "delivered", "refused"]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A result that the gateway will never take."""

    status: int
    at: str
    message: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One job. Results stay on disk: many of them may be owed."""

    job_id: str
    stage: Stage
    node_id: str
    request_id: str | None
    pre_start: bool = False
    """The job never began here, so it may come again."""
    refusal: Refusal | None = None


class JobBook:
    """The jobs of one gateway node. Blocking: small files, each written whole."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._entries: dict[str, Entry] = {}
        for entry in self._read_all():
            self._entries[entry.job_id] = entry
        self._cut_off = [e.job_id for e in self._entries.values() if e.stage == "started"]
        """Jobs of an earlier process; others that are started still run."""

    def stage_of(self, job_id: str) -> Stage | None:
        entry = self._entries.get(job_id)
        return None if entry is None else entry.stage

    def may_run(self, job_id: str) -> bool:
        """Whether the job is new here, or comes again after it could not be started."""
        entry = self._entries.get(job_id)
        return entry is None or (entry.pre_start and entry.stage != "started")

    def started(self, job: Mapping[str, Any]) -> None:
        self._write(_entry(job, "started"))

    def finished(self, result: Mapping[str, Any]) -> None:
        """The result is owed from now on."""
        self._write(_entry(result, "finished"), result)
        self._prune("finished", KEPT_OWED)

    def delivered(self, job_id: str) -> None:
        """The gateway has the result. A job that never began is forgotten: it may come again."""
        entry = self._entries.get(job_id)
        if entry is None:
            return
        if entry.pre_start:
            self.forget(job_id)
            return
        self._write(Entry(job_id, "delivered", entry.node_id, entry.request_id))
        self._prune("delivered", KEPT_DELIVERED)

    def refused(self, job_id: str, refusal: Refusal) -> None:
        """The gateway will never take the result; only the reason is kept, for the operator."""
        entry = self._entries.get(job_id)
        if entry is not None:
            self._write(replace(entry, stage="refused", refusal=refusal))
            self._prune("refused", KEPT_REFUSED)

    def owed(self) -> list[str]:
        """Ids of jobs whose results the gateway does not have, oldest first."""
        return [entry.job_id for entry in self._entries.values() if entry.stage == "finished"]

    def refusals(self) -> dict[str, Refusal]:
        """Why results were given up, by job, oldest first."""
        return {
            entry.job_id: entry.refusal
            for entry in self._entries.values()
            if entry.refusal is not None
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
        cut_off, self._cut_off = self._cut_off, []
        try:
            return self.fail(cut_off)
        except OSError:
            self._cut_off = cut_off
            raise

    def fail(self, job_ids: Iterable[str]) -> int:
        """The result of jobs that were started here and are not run any more; how many."""
        found = [self._entries.get(job_id) for job_id in job_ids]
        cut_off = [entry for entry in found if entry is not None and entry.stage == "started"]
        for entry in cut_off:
            self.finished(
                {
                    "job_id": entry.job_id,
                    "request_id": entry.request_id,
                    "status": "failed",
                    "error": {
                        "code": "upstream_error",
                        "message": "the node stopped while the job ran",
                    },
                    "timing": {"local_latency_ms": 0},
                    "node_id": entry.node_id,
                }
            )
        return len(cut_off)

    def forget(self, job_id: str) -> None:
        """It never began."""
        if self._entries.pop(job_id, None) is not None:
            self._file(job_id).unlink(missing_ok=True)

    def clear(self) -> None:
        """The enrolment is over, and with it all that was owed."""
        for job_id in list(self._entries):
            self.forget(job_id)

    def _write(self, entry: Entry, result: Mapping[str, Any] | None = None) -> None:
        make_private_dir(self.directory)
        refusal = entry.refusal
        body = {
            "job_id": entry.job_id,
            "request_id": entry.request_id,
            "node_id": entry.node_id,
            "stage": entry.stage,
            "pre_start": entry.pre_start,
            "written": time.time_ns(),
            **({} if result is None else {"result": dict(result)}),
            **({} if refusal is None else {"refusal": asdict(refusal)}),
        }
        write_atomic(self._file(entry.job_id), json.dumps(body).encode(), mode=0o600)
        self._entries.pop(entry.job_id, None)
        self._entries[entry.job_id] = entry

    def _prune(self, stage: Stage, kept: int) -> None:
        of_stage = [entry for entry in self._entries.values() if entry.stage == stage]
        for entry in of_stage[: max(0, len(of_stage) - kept)]:
            if stage == "finished":
                log.warning(
                    "the result of job %s was never taken and is given up", entry.job_id[:64]
                )
            self.forget(entry.job_id)

    def _file(self, job_id: str) -> Path:
        # Job ids are the gateway's words and must not become paths.
        return self.directory / f"{sha256_hex(job_id)[:32]}.json"

    def _read_all(self) -> list[Entry]:
        found: list[tuple[int, Entry]] = []
        for file in sorted(self.directory.glob("*.json")):
            try:
                body = json.loads(file.read_text(encoding="utf-8"))
                found.append((int(body["written"]), _read_entry(body)))
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                log.warning("%s is no record of a job and is left alone: %s", file.name, error)
        return [entry for _, entry in sorted(found, key=lambda item: item[0])]


def _entry(facts: Mapping[str, Any], stage: Stage) -> Entry:
    request_id = facts.get("request_id")
    return Entry(
        str(facts.get("job_id")),
        stage,
        str(facts.get("node_id")),
        None if request_id is None else str(request_id),
        pre_start=facts.get("pre_start_failure") is True,
    )


def _read_entry(body: Mapping[str, Any]) -> Entry:
    result, refusal = body.get("result"), body.get("refusal")
    # Files of earlier versions tell it only in the result.
    never_began = isinstance(result, dict) and result.get("pre_start_failure") is True
    return Entry(
        body["job_id"],
        body["stage"],
        body["node_id"],
        body["request_id"],
        pre_start=never_began or body.get("pre_start") is True,
        refusal=None if refusal is None else Refusal(**refusal),
    )

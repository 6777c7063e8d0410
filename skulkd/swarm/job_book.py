"""What became of jobs, on disk: started, finished with a result that is owed, delivered.

A result is on disk before it is posted and stays until the gateway has it, so a kill loses
nothing. What was delivered leaves only its id behind, against a second run of the same job.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from skulkd.settings.files import make_private_dir, write_atomic
from skulkd.swarm.script_values import sha256_hex

KEPT_DELIVERED = 256
KEPT_OWED = 1024

Stage = Literal["started", "finished", "delivered"]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """One job. The result is there while it is owed."""

    job_id: str
    stage: Stage
    node_id: str
    request_id: str
    result: dict[str, Any] | None = None


class JobBook:
    """The jobs of one gateway node. Blocking: small files, each written whole."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._entries: dict[str, Entry] = {}
        for entry in self._read_all():
            self._entries[entry.job_id] = entry

    def stage_of(self, job_id: str) -> Stage | None:
        entry = self._entries.get(job_id)
        return None if entry is None else entry.stage

    def started(self, job: Mapping[str, Any]) -> None:
        self._write(
            Entry(
                str(job.get("job_id")),
                "started",
                str(job.get("node_id")),
                str(job.get("request_id")),
            )
        )

    def finished(self, result: Mapping[str, Any]) -> None:
        """The result is owed from now on."""
        entry = Entry(
            str(result.get("job_id")),
            "finished",
            str(result.get("node_id")),
            str(result.get("request_id")),
            dict(result),
        )
        self._write(entry)
        self._prune("finished", KEPT_OWED)

    def delivered(self, job_id: str) -> None:
        entry = self._entries.get(job_id)
        if entry is not None:
            self._write(Entry(job_id, "delivered", entry.node_id, entry.request_id))
            self._prune("delivered", KEPT_DELIVERED)

    def owed(self) -> list[dict[str, Any]]:
        """Results that the gateway does not have, oldest first."""
        return [
            entry.result
            for entry in self._entries.values()
            if entry.stage == "finished" and entry.result is not None
        ]

    def fail_interrupted(self) -> int:
        """Jobs that were running when the process ended get their result now; how many."""
        cut_off = [entry for entry in self._entries.values() if entry.stage == "started"]
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

    def _write(self, entry: Entry) -> None:
        make_private_dir(self.directory)
        body = {
            "job_id": entry.job_id,
            "request_id": entry.request_id,
            "node_id": entry.node_id,
            "stage": entry.stage,
            "written": time.time_ns(),
            **({} if entry.result is None else {"result": entry.result}),
        }
        text = json.dumps(body, ensure_ascii=False)
        write_atomic(self._file(entry.job_id), text.encode(), mode=0o600)
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
                entry = Entry(
                    body["job_id"],
                    body["stage"],
                    body["node_id"],
                    body["request_id"],
                    body.get("result"),
                )
                found.append((int(body["written"]), entry))
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("%s is no record of a job and is left alone: %s", file.name, error)
        return [entry for _, entry in sorted(found, key=lambda item: item[0])]

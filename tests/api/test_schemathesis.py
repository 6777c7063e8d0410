"""Generated requests against a real daemon, from its own OpenAPI: no answer is a 5xx.

Deterministic and with a small budget: the same requests on every run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.daemon_process import StartDaemon, wait_until

CHECKS = ",".join(
    [
        "not_a_server_error", "status_code_conformance", "content_type_conformance",
        "response_schema_conformance",
    ]
)  # fmt: skip


def test_generated_requests_find_no_server_error(daemon: StartDaemon, tmp_path: Path) -> None:
    target = daemon()
    work = tmp_path / "work"
    work.mkdir()
    run = subprocess.run(
        [
            str(Path(sys.executable).parent / "schemathesis"),
            "run", f"{target.url}/api/openapi.json",
            "--checks", CHECKS,
            "--max-examples", "10",
            "--phases", "examples,coverage,fuzzing",
            # A restart in mid-run would only test the connection errors of the client.
            "--exclude-path", "/admin/restart",
            # Without a store these answer with the contract's own 503; see tests/storage.
            # A shard's schema alone makes two thousand cases; /instance covers it.
            "--exclude-path-regex", "^/(store/(health|registry|downloads|models)|download/start)",
            # Who follows events gets an answer without an end; see tests/observe.
            "--exclude-path", "/v1/events",
            # These two call a gateway on the internet, which tests must not.
            "--exclude-path", "/v1/swarm/setup",
            "--exclude-path", "/v1/swarm/enroll",
            "--generation-deterministic",
            "--request-timeout", "30",
            "--no-color",
        ],
        cwd=work,
        env={**os.environ, "NO_COLOR": "1", "HYPOTHESIS_STORAGE_DIRECTORY": str(work)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert "unexpected error" not in target.said()
    assert wait_until(lambda: target.get("/readyz"), "the daemon") == {"status": "ok"}

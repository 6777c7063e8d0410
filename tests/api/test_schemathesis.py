"""Generated requests against a real daemon, from its own OpenAPI: no answer is a 5xx.

Bounded by the number of examples and deterministic: the same requests on every run, however busy
the machine is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.daemon_process import StartDaemon, wait_until

# Only ends a run that hangs. Ten times as long as a run beside four busy loops on two cores.
HANG_S = 1500.0
CHECKS = ",".join(
    [
        "not_a_server_error", "status_code_conformance", "content_type_conformance",
        "response_schema_conformance",
    ]
)  # fmt: skip


# So many nested fields that covering each of them takes thousands of requests.
LARGE = ("/instance", "/config")


def generate(
    url: str, work: Path, *options: str, phases: str = "examples,coverage,fuzzing"
) -> subprocess.CompletedProcess[str]:
    """Requests made from the daemon's own description of itself."""
    return subprocess.run(
        [
            str(Path(sys.executable).parent / "schemathesis"),
            "run", f"{url}/api/openapi.json",
            "--checks", CHECKS,
            "--max-examples", "10",
            "--phases", phases,
            *options,
            "--generation-deterministic",
            "--suppress-health-check", "too_slow",
            "--request-timeout", "300",
            "--no-color",
        ],
        cwd=work,
        env={**os.environ, "NO_COLOR": "1", "HYPOTHESIS_STORAGE_DIRECTORY": str(work)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )  # fmt: skip


def test_generated_requests_find_no_server_error(daemon: StartDaemon, tmp_path: Path) -> None:
    target = daemon()
    run = generate(
        target.url, tmp_path,
        *(part for path in LARGE for part in ("--exclude-path", path)),
        # A restart in mid-run would only test the connection errors of the client.
        "--exclude-path", "/admin/restart",
        # Without a store these answer with the contract's own 503; see tests/storage.
        # A shard's schema alone makes two thousand cases; /instance covers it.
        "--exclude-path-regex", "^/(store/(health|registry|downloads|models)|download/start)",
        "--exclude-path", "/v1/events",  # below
        # These two call a gateway on the internet, which tests must not.
        "--exclude-path", "/v1/swarm/setup",
        "--exclude-path", "/v1/swarm/enroll",
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    large = [part for path in LARGE for part in ("--include-path", path)]
    run = generate(target.url, tmp_path, *large, phases="examples,fuzzing")
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert "unexpected error" not in target.said()
    assert wait_until(lambda: target.get("/readyz"), "the daemon") == {"status": "ok"}


def test_generated_questions_for_events_are_answered(daemon: StartDaemon, tmp_path: Path) -> None:
    """Who follows gets an answer without an end, so nobody follows here; see tests/observe."""
    target = daemon()
    pinned = 'include-path = "/v1/events"\nparameters = { follow = "false" }\n'
    (tmp_path / "schemathesis.toml").write_text(f"[[operations]]\n{pinned}")
    run = generate(target.url, tmp_path, "--include-path", "/v1/events")
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert "Tested: 1" in run.stdout
    assert "unexpected error" not in target.said()

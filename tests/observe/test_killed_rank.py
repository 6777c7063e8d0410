"""The trace of a request whose rank was killed: what was measured is there, marked as partial."""

from __future__ import annotations

import os
import signal
from typing import Any

from tests.cluster_live.chatting import ENDLESS, stream
from tests.cluster_live.cluster import StartCluster
from tests.cluster_live.fixtures import cluster
from tests.daemon_process import wait_until

__all__ = ["cluster"]


def test_a_trace_survives_the_death_of_a_rank(cluster: StartCluster) -> None:
    running = cluster(2)
    near, far = running.nodes
    running.place(min_nodes=2)
    near.ask("PUT", "/v1/tracing", {"enabled": True})
    wait_until(lambda: far.get("/v1/tracing")["enabled"], "the switch on both nodes", 300)
    answer = stream(near, ENDLESS)

    def traced() -> Any:
        """Both ranks have sent steps of a request that is not over."""
        for row in near.get("/v1/cluster/traces")["traces"]:
            events = near.get(f"/v1/traces/cluster/{row['taskId']}")["traces"]
            if {one["rank"] for one in events if one["name"] == "decode_step"} == {0, 1}:
                return row
        return None

    row = wait_until(traced, "spans of a running request", 300)
    assert row["partial"]
    runners = near.get("/v1/cluster/timeline")["runners"]
    [pid] = [runner["pid"] for runner in runners if runner["deviceRank"] == 1]
    os.kill(pid, signal.SIGKILL)
    answer.wait_end()
    assert answer.error is not None
    kept = far.get(f"/v1/traces/cluster/{row['taskId']}")
    assert {event["rank"] for event in kept["traces"]} == {0, 1}
    assert {"prefill", "decode_step"} <= {event["name"] for event in kept["traces"]}
    [after] = far.get("/v1/cluster/traces")["traces"]
    assert (after["partial"], after["commandId"]) == (True, answer.command_id)

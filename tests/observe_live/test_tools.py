"""Traces, events, logs and capture on two real daemons that share a model, over the CLI."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cluster_live.chatting import stream
from tests.cluster_live.cluster import StartCluster
from tests.daemon_process import wait_until


def test_what_an_operator_asks_for_is_there(cluster: StartCluster, tmp_path: Path) -> None:
    running = cluster(2)
    near, far = running.nodes
    assert far.skulkctl("trace", "on").out == "tracing is on\n"
    instance_id = running.place(min_nodes=2)
    wait_until(lambda: near.get("/v1/tracing")["enabled"], "the switch on both nodes", 300)
    answer = stream(near, 30)
    answer.wait_end()
    assert answer.finished, answer.end_text()

    def whole_trace() -> dict[str, object] | None:
        traces = near.get("/v1/cluster/traces")["traces"]
        done = [one for one in traces if not one["partial"]]
        return done[0] if done else None

    trace = wait_until(whole_trace, "the parts of both ranks", 300)
    assert (trace["ranks"], trace["commandId"]) == ([0, 1], answer.command_id)
    drawn = far.skulkctl("trace", "show", "--command", str(answer.command_id))
    assert drawn.code == 0, drawn.err
    assert {line.split()[0] for line in drawn.out.splitlines()[1:]} == {"0", "1"}
    file = tmp_path / "trace.json"
    far.skulkctl("trace", "export", str(trace["taskId"]), "--file", str(file))
    assert {row["tid"] for row in json.loads(file.read_text())["traceEvents"]} == {0, 1}

    told = near.skulkctl("events", "--kind", "InstanceCreated", "-o", "jsonl").out
    event = json.loads(told.splitlines()[0])["event"]["InstanceCreated"]["instance"]
    assert event["MlxRingInstance"]["instance_id"] == instance_id

    assert "listening on" in near.skulkctl("logs", far.name).out
    bundle = tmp_path / "capture.tar.zst"
    done = near.skulkctl("capture", "--no-samples", "--file", str(bundle))
    assert done.code == 0, done.err
    shown = near.skulkctl("timeline", "--from", str(bundle), "--once")
    assert "kite1" in shown.out and "kite2" in shown.out
    secret = running.secret.encode()
    assert secret not in bundle.read_bytes()
    assert near.skulkctl("timeline", "--check").code == 0

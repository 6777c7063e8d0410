"""Names of the nodes in a frame: from the state, and for lost nodes from the list of losses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from skulkctl.daemon.calls import Call
from skulkctl.timeline.frames import Frame, Watch
from skulkd.wire.cluster import ClusterView, LostNode
from skulkd.wire.ids import NodeId
from tests.cli.builders import a_cluster
from tests.timeline.builders import rank, read, timeline

SILENT = read(timeline(rank(0, []), silent={"node-9": "connection refused"}))


def view(*lost: LostNode) -> ClusterView:
    return ClusterView(
        generated_at="2026-01-01T00:00:00Z", local_node_id=NodeId("node-0"), lost=list(lost)
    )


def next_frame(watch: Watch, answers: dict[str, Any]) -> tuple[Frame, list[str]]:
    """Runs the steps of a frame; also which paths were asked for."""
    steps, asked, answer = watch.next_frame(), list[str](), None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as done:
            return done.value, asked
        assert isinstance(step, Call)
        asked.append(step.request.path)
        answer = answers[step.request.path]


def test_a_lost_node_keeps_the_name_it_had() -> None:
    lost = LostNode(
        name="kite9", node_id=NodeId("node-9"), since=datetime.now(UTC), since_seconds=1.0
    )
    answers = {
        "/v1/cluster/timeline": SILENT,
        "/state": a_cluster(nodeIdentities={"node-0": {"friendlyName": "kite0"}}),
        "/v1/cluster": view(lost),
    }
    frame, asked = next_frame(Watch(), answers)
    assert frame.names["node-9"] == "kite9"
    assert asked == ["/v1/cluster/timeline", "/state", "/v1/cluster"]


def test_known_names_are_not_asked_for_again() -> None:
    watch = Watch()
    names = {node: {"friendlyName": node} for node in ("node-0", "node-9")}
    answers = {"/v1/cluster/timeline": SILENT, "/state": a_cluster(nodeIdentities=names)}
    assert next_frame(watch, answers)[1] == ["/v1/cluster/timeline", "/state"]
    assert next_frame(watch, answers)[1] == ["/v1/cluster/timeline"]

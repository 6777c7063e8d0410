"""What deserves a toast: the difference between two snapshots. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from skulkctl.nodes.rows import LOST
from skulkctl.placement.instances import failures, instance_items

if TYPE_CHECKING:
    from skulkctl.ui.snapshot import Snapshot

Severity = Literal["information", "warning", "error"]
Notice = tuple[Severity, str, str]
"""How bad it is, what happened, and the details."""


def changes(before: Snapshot | None, now: Snapshot) -> Iterator[Notice]:
    """A node was lost or came back, an instance failed, a verdict changed."""
    if before is None:
        return
    yield from _verdicts(before, now)
    if before.cluster is None or now.cluster is None:
        return
    lost_before = {node["name"] for node in before.cluster.nodes if node["health"] == LOST}
    lost_now = {node["name"] for node in now.cluster.nodes if node["health"] == LOST}
    for name in sorted(lost_now - lost_before):
        yield "error", "node lost", f"{name} left without notice"
    there = {node["name"] for node in now.cluster.nodes}
    for name in sorted((lost_before - lost_now) & there):
        yield "information", "node is back", name
    failed_before = set(_failed(before))
    for instance, why in _failed(now).items():
        if instance not in failed_before:
            yield "error", "instance failed", why


def _failed(snapshot: Snapshot) -> dict[str, str]:
    if snapshot.cluster is None:
        return {}
    return {
        item["id"]: f"{item['modelId']}: {failures(item)[0]['error']}"
        for item in instance_items(snapshot.cluster.state)
        if failures(item)
    }


def _verdicts(before: Snapshot, now: Snapshot) -> Iterator[Notice]:
    for finding in now.verdict.findings:
        if finding.instance_id is None:
            continue
        old = before.verdict.of(finding.instance_id)
        was_problem = old is not None and old.is_problem
        if finding.is_problem and (old is None or old.state is not finding.state):
            yield "error", f"{finding.state} {finding.rule or ''}".strip(), finding.summary
        elif was_problem and not finding.is_problem:
            yield "information", str(finding.state), f"{finding.model_id}: {finding.summary}"

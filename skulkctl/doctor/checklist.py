"""The list of all checks, in the order in which they are shown, and how it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypedDict

from skulkctl.doctor import checks
from skulkctl.doctor.facts import Check, Facts, Finding
from skulkctl.output.tables import Column, Resource


class CheckItem(TypedDict):
    """The result of one check."""

    check: str
    result: str
    message: str
    hint: str | None


CHECKS = Resource(
    kind="CheckList",
    name_path="check",
    columns=(
        Column("result", "result", "ok, warn, fail or skip.", status=True),
        Column("check", "check", "Name of the check."),
        Column("message", "message", "Result of the check."),
        Column("hint", "hint", "How to fix it.", wide=True),
    ),
)


TABLE: Mapping[str, tuple[Check, Callable[[Facts], str]]] = {
    "ready": (checks.ready, checks.always("the daemon is ready to serve")),
    "version": (checks.version, checks.always("no nodes")),
    "cluster-size": (checks.cluster_size, checks.always("")),
    "lost": (checks.lost, checks.always("no member is missing")),
    "master": (checks.master, checks.always("no node is known as master")),
    "answers": (checks.answers, checks.always("every node responds")),
    "fresh": (checks.fresh, checks.always("every node has reported in the last 15s")),
    "memory": (checks.memory, checks.least_free("memory")),
    "disk": (checks.disk, checks.least_free("disk")),
    "storage": (checks.storage, checks.always("enough disk space for staged models")),
    "health": (checks.health, checks.always("no node reports a problem")),
    "instances": (
        checks.instances,
        lambda facts: (
            f"{checks.counted(len(facts.instances), 'instance')} placed, none with a problem"
        ),
    ),
    "ranks": (checks.ranks, checks.always("no rank is stuck")),
    "ring": (checks.ring, checks.always("no ring crosses a public network")),
    "blas": (checks.blas, checks.always("no model is loaded")),
    "warnings": (checks.warnings, checks.always("no node has a warning")),
    "rotation": (checks.rotation, checks.always("every node accepts new work")),
    "swarm": (checks.swarm, checks.gateway_node),
    "config": (checks.config, checks.always("the configuration is valid")),
    "clock": (checks.clock, checks.always("clocks agree within 5s")),
    "certificates": (checks.certificates, checks.first_to_expire),
    "secrets": (checks.secrets, checks.always("secret files are private")),
    "client": (checks.client, checks.always("")),
}
"""Each check, and what it says when it finds nothing."""


def run_checks(facts: Facts) -> list[CheckItem]:
    """All checks against a daemon that answers."""
    items = [_item("daemon", Finding("ok", f"responds at {facts.endpoint}"))]
    for name, (check, all_well) in TABLE.items():
        findings = list(check(facts)) or [Finding("ok", all_well(facts))]
        items.extend(_item(name, finding) for finding in findings)
    return items


def without_daemon(message: str, hint: str | None, facts: Facts) -> list[CheckItem]:
    """The list when no daemon answers: what needs one is skipped."""
    items = [_item("daemon", Finding("fail", message, hint))]
    for name, (check, all_well) in TABLE.items():
        if name in ("secrets", "client"):
            findings = list(check(facts)) or [Finding("ok", all_well(facts))]
        else:
            findings = [Finding("skip", "requires a daemon")]
        items.extend(_item(name, finding) for finding in findings)
    return items


def _item(name: str, finding: Finding) -> CheckItem:
    return {
        "check": name,
        "result": finding.result,
        "message": ": ".join(filter(None, (", ".join(finding.nodes), finding.message))),
        "hint": finding.hint,
    }

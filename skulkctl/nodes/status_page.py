"""The whole cluster on one screen: a document, the problems in it, and its text. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from skulkctl.doctor.checklist import TABLE
from skulkctl.doctor.checks import disk
from skulkctl.doctor.checks import lost as lost_members
from skulkctl.doctor.facts import Facts, Finding
from skulkctl.layout import pairs
from skulkctl.nodes.rows import NO_ANSWER, DiskItem, MemoryItem, NodeItem
from skulkctl.placement.instances import INSTANCES, InstanceItem
from skulkctl.screen import paint
from skulkctl.tables import EMPTY, Column, Resource, age, plain, render
from skulkctl.units import size_text

if TYPE_CHECKING:
    from skulkctl.daemon.members import Members
    from skulkctl.daemon.state import ClusterState
    from skulkd.wire.cluster import ClusterSession

LEVELS = {"download_failed": "error", "disk_full": "error", "disk_low": "warn"}
LEVELS |= {"event_log": "warn"}
LEVELS |= {"unreachable": "error"}
"""A silent node is only `warn` to its peers; for the operator the cluster is not well."""

QUICK = ("version", "fresh", "memory", "instances", "warnings", "clock")
"""Checks of `doctor` that need no more facts than `status` has."""

_INSTANCE_COLUMNS = "instance,model,ready,status,nodes"

PROBLEMS = Resource(
    kind="ProblemList",
    name_path="code",
    columns=(
        Column("level", "level", "error or warn.", status=True),
        Column("where", "where", "Node or instance."),
        Column("problem", "code", "Short name of the problem."),
        Column("message", "message", "What is wrong, with numbers."),
    ),
)


class ProblemItem(TypedDict):
    level: str
    where: str
    code: str
    message: str
    remediation: str | None


class TotalItem(TypedDict):
    availableBytes: int
    totalBytes: int
    nodesMeasured: int


class StatusItem(TypedDict):
    """What `skulkctl status -o json` prints."""

    context: str | None
    endpoint: str
    healthy: bool
    nodes: list[dict[str, object]]
    lost: list[dict[str, object]]
    master: str | None
    session: dict[str, object] | None
    versions: list[str]
    memory: TotalItem | None
    disk: TotalItem | None
    tracingEnabled: bool | None
    instances: list[InstanceItem]
    problems: list[ProblemItem]
    warnings: list[ProblemItem]


def status_document(
    context: str | None,
    endpoint: str,
    state: ClusterState,
    members: Members,
    nodes: Sequence[NodeItem],
    instances: Sequence[InstanceItem],
) -> StatusItem:
    """The cluster as one document: totals, problems and warnings."""
    session = members.session
    facts = Facts(
        endpoint,
        nodes,
        instances,
        session=session,
        lost=members.lost,
        warnings=members.warnings,
    )
    found = [
        *_lost(facts),
        *_silence(nodes),
        *_other_sessions(nodes, session),
        *_node_reasons(nodes),
        *_instance_reasons(instances),
        *_draining(nodes),
        *_checked(facts),
    ]
    if not nodes:
        message = "the daemon answers, but knows no node, not even itself"
        found.append(_problem("error", EMPTY, "no_nodes", message, None))
    problems = [entry for entry in found if _is_problem(entry)]
    masters = [node for node in nodes if node["role"] == "master"]
    return {
        "context": context,
        "endpoint": endpoint,
        "healthy": not problems,
        "nodes": [
            {key: node[key] for key in ("name", "id", "role", "health", "version", "draining")}
            for node in nodes
        ],
        "lost": [node.model_dump(mode="json") for node in members.lost],
        "master": masters[0]["name"] if masters else None,
        "session": session.model_dump(mode="json") if session else None,
        "versions": sorted({node["version"] for node in nodes if node["version"]}),
        "memory": _total([node["memory"] for node in nodes]),
        "disk": _total([node["disk"] for node in nodes]),
        "tracingEnabled": state.tracing_enabled,
        "instances": list(instances),
        "problems": problems,
        "warnings": [entry for entry in found if not _is_problem(entry)],
    }


def _lost(facts: Facts) -> list[ProblemItem]:
    return [_from_check("lost", found) for found in lost_members(facts) if found.result == "fail"]


def _checked(facts: Facts) -> list[ProblemItem]:
    """The warnings of `doctor`, as far as the facts at hand go. A low disk is a health reason."""
    unread = [node for node in facts.nodes if node["disk"] is None]
    found = [(name, finding) for name in QUICK for finding in TABLE[name][0](facts)]
    found += [("disk", finding) for finding in disk(replace(facts, nodes=unread))]
    return [_from_check(name, finding) for name, finding in found if finding.result == "warn"]


def _from_check(name: str, found: Finding) -> ProblemItem:
    level = "error" if found.result == "fail" else "warn"
    return _problem(level, ", ".join(found.nodes) or EMPTY, name, found.message, found.hint)


def _silence(nodes: Sequence[NodeItem]) -> list[ProblemItem]:
    return [
        _problem(
            "error",
            node["name"],
            "no_answer",
            f"no answer: {node['error']}",
            f"skulkctl diagnose {node['name']}",
        )
        for node in nodes
        if node["error"]
    ]


def _other_sessions(nodes: Sequence[NodeItem], session: ClusterSession | None) -> list[ProblemItem]:
    """Nodes that follow another master than the one that answers: a split, or an election."""
    own = session.id if session else None
    return [
        _problem(
            "error",
            node["name"],
            "other_session",
            f"follows session {node['session']}, not {own}",
            "wait a few seconds; if it stays, check the network between the nodes",
        )
        for node in nodes
        if own and node["session"] and node["session"] != own
    ]


def _node_reasons(nodes: Sequence[NodeItem]) -> list[ProblemItem]:
    return [
        _problem(
            LEVELS.get(reason["code"]) or node["health"] or "warn",
            node["name"],
            reason["code"],
            reason["message"],
            reason.get("remediation"),
        )
        for node in nodes
        for reason in node["reasons"] or _unexplained(node)
    ]


def _unexplained(node: NodeItem) -> list[dict[str, str]]:
    """A node that is not well and does not say why is still a problem."""
    if node["health"] in (None, "ok", NO_ANSWER):
        return []
    return [{"code": "unexplained", "message": f"health is {node['health']}, no reason given"}]


def _instance_reasons(instances: Sequence[InstanceItem]) -> list[ProblemItem]:
    return [
        _problem(
            "error",
            f"{instance['modelId']} on {runner['node']}",
            "runner_failed",
            runner["error"] or "the runner gave no reason",
            None,
        )
        for instance in instances
        for runner in instance["runners"]
        if runner["status"] == "RunnerFailed"
    ]


def _draining(nodes: Sequence[NodeItem]) -> list[ProblemItem]:
    return [
        _problem(
            "warn",
            node["name"],
            "draining",
            "takes no new work",
            f"skulkctl undrain {node['name']}",
        )
        for node in nodes
        if node["draining"]
    ]


def _problem(
    level: str, where: str, code: str, message: str, remediation: str | None
) -> ProblemItem:
    return {
        "level": level,
        "where": where,
        "code": code,
        "message": message,
        "remediation": remediation,
    }


def _is_problem(entry: ProblemItem) -> bool:
    return entry["level"] == "error"


def _total(readings: Sequence[MemoryItem | DiskItem | None]) -> TotalItem | None:
    """Sums over the nodes that have a reading; None when none has, never a zero."""
    measured = [reading for reading in readings if reading is not None]
    if not measured:
        return None
    return {
        "availableBytes": sum(reading["availableBytes"] for reading in measured),
        "totalBytes": sum(reading["totalBytes"] for reading in measured),
        "nodesMeasured": len(measured),
    }


def status_screen(status: StatusItem, colour: bool, room: int | None = None) -> str:
    """The document for people."""
    tracing = {True: "on", False: "off", None: EMPTY}
    lines = [
        ("cluster", _verdict(status, colour)),
        ("context", plain(status["context"])),
        ("endpoint", plain(status["endpoint"])),
        ("nodes", _nodes_line(status)),
        ("master", plain(status["master"])),
        *_session_line(status["session"]),
        ("version", ", ".join(status["versions"]) or EMPTY),
        ("memory", _free_of(status["memory"], len(status["nodes"]))),
        ("disk", _free_of(status["disk"], len(status["nodes"]))),
        ("tracing", tracing[status["tracingEnabled"]]),
    ]
    page = pairs(lines, room, label=8)
    columns = INSTANCES.choose(_INSTANCE_COLUMNS, False)
    instances = render(columns, status["instances"], colour=colour, room=room)
    page += f"\n{instances}" if status["instances"] else "instances none\n"
    if shown := [*status["problems"], *status["warnings"]]:
        page += "\n" + render(PROBLEMS.columns, shown, colour=colour, room=room)
    return page


def _verdict(status: StatusItem, colour: bool) -> str:
    word, role = ("ok", "ok") if status["healthy"] else ("error", "problem")
    counts = ", ".join(
        f"{number} {noun}{'' if number == 1 else 's'}"
        for number, noun in (
            (len(status["problems"]), "problem"),
            (len(status["warnings"]), "warning"),
        )
    )
    return f"{paint(word, role) if colour else word}  {counts}"


def _session_line(session: Mapping[str, object] | None) -> list[tuple[str, str]]:
    """Nothing where the server does not tell."""
    if session is None:
        return []
    return [("session", f"{plain(session['id'])}  for {age(session['ageSeconds'])}")]


def _nodes_line(status: StatusItem) -> str:
    names = [plain(node["name"]) for node in status["nodes"]]
    lost = [plain(node["name"]) for node in status["lost"]]
    missing = f"; lost: {', '.join(lost)}" if lost else ""
    return f"{len(names)}  {', '.join(names)}".rstrip() + missing


def _free_of(total: TotalItem | None, nodes: int) -> str:
    if total is None:
        return EMPTY
    measured = total["nodesMeasured"]
    of = "" if measured == nodes else f", {measured} of {nodes} nodes measured"
    free, everything = size_text(total["availableBytes"]), size_text(total["totalBytes"])
    return f"{free} free of {everything}{of}"

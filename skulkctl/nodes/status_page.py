"""The whole cluster on one screen: a document, the problems in it, and its text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from skulkctl.doctor.checklist import TABLE
from skulkctl.doctor.checks import disk
from skulkctl.doctor.checks import lost as lost_members
from skulkctl.doctor.facts import Facts, Finding
from skulkctl.nodes.rows import LOST, NO_ANSWER, DiskItem, MemoryItem, NodeItem
from skulkctl.output.layout import hanging
from skulkctl.output.tables import (
    EMPTY,
    Column,
    Resource,
    age,
    plain,
    render,
    share,
    size,
    value_at,
)
from skulkctl.output.terminal import paint, with_symbol
from skulkctl.output.units import size_text
from skulkctl.placement.instances import INSTANCES, InstanceItem

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

PROBLEMS = Resource(
    kind="ProblemList",
    name_path="code",
    columns=(
        Column("level", "level", "error or warn.", status=True),
        Column("where", "where", "Node or instance."),
        Column("problem", "code", "Short name of the problem.", spare=2),
        Column("message", "message", "What is wrong, with numbers."),
        Column("what-to-do", "remediation", "How to fix it.", spare=1),
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
        message = "the daemon responds, but lists no nodes, not even itself"
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
            "wait a few seconds; if it persists, check the network between the nodes",
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
            "accepts no new work",
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


def status_screen(
    status: StatusItem, nodes: Sequence[NodeItem], colour: bool, room: int | None = None
) -> str:
    """The document for people: what is wrong first, then nodes and instances at a glance."""
    tables = [
        render(columns, items, colour=colour, room=room)
        for columns, items in (
            (PROBLEMS.columns, [*status["problems"], *status["warnings"]]),
            (_NODES, [_node_row(node, status["instances"]) for node in nodes]),
            (_instance_columns(), status["instances"]),
        )
        if items
    ]
    if not status["instances"]:
        tables.append("no model is placed\n")
    head = [_verdict(status, colour, room), *hanging("", " · ".join(_totals(status)), room)]
    return "\n".join(["".join(f"{line}\n" for line in head), *tables])


def _verdict(status: StatusItem, colour: bool, room: int | None) -> str:
    """`● ok · lab · 3 of 4 nodes · master kite1 for 2h · no problem`."""
    word, role = ("ok", "ok") if status["healthy"] else ("error", "problem")
    shown = with_symbol(word) if room is not None else word
    here, gone = len(status["nodes"]), len(status["lost"])
    facts = [
        plain(status["context"] or status["endpoint"]),
        f"{here} of {here + gone} nodes" if gone else _count(here, "node"),
    ]
    if status["master"]:
        held = f" for {age(status['session']['ageSeconds'])}" if status["session"] else ""
        facts.append(f"master {plain(status['master'])}{held}")
    found = [
        _count(number, noun)
        for number, noun in (
            (len(status["problems"]), "problem"),
            (len(status["warnings"]), "warning"),
        )
        if number
    ]
    lines = hanging("", " · ".join([shown, *facts, ", ".join(found) or "no problem"]), room)
    if colour:
        lines[0] = lines[0].replace(shown, paint(shown, role), 1)
    return "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _totals(status: StatusItem) -> list[str]:
    """What is known of the cluster as a whole."""
    tracing = {True: "tracing on", False: "tracing off", None: None}
    parts = [
        _free_of("memory", status["memory"], len(status["nodes"])),
        _free_of("disk", status["disk"], len(status["nodes"])),
        tracing[status["tracingEnabled"]],
        f"version {', '.join(status['versions'])}" if status["versions"] else None,
        plain(status["endpoint"]) if status["context"] else None,
    ]
    return [part for part in parts if part is not None]


def _free_of(what: str, total: TotalItem | None, nodes: int) -> str | None:
    if total is None:
        return None
    measured = total["nodesMeasured"]
    of = "" if measured == nodes else f", {measured} of {nodes} nodes measured"
    free, everything = size_text(total["availableBytes"]), size_text(total["totalBytes"])
    return f"{what} {free} free of {everything}{of}"


def _node_row(node: NodeItem, instances: Sequence[InstanceItem]) -> dict[str, object]:
    """The node, and how many requests its instances have."""
    tasks = sum(each["tasks"] for each in instances if node["name"] in each["nodes"])
    is_here = node["health"] not in (LOST, NO_ANSWER)
    work = (_count(tasks, "request") if tasks else "idle") if is_here else None
    crown = " ♛" if node["role"] == "master" else ""
    return {**node, "title": f"{node['name']}{crown}", "work": work}


def _used_of(memory: object) -> str:
    """`27.0 of 36.0GiB`."""
    used, total = value_at(memory, "availableBytes"), value_at(memory, "totalBytes")
    if not isinstance(used, int) or not isinstance(total, int):
        return EMPTY
    whole = size(total)
    unit = whole.lstrip("0123456789.")
    return f"{size(total - used).removesuffix(unit)} of {whole}"


_NODES = (
    Column("node", "title", "Name; the crown marks the master."),
    Column("health", "health", "As in `skulkctl nodes`.", status=True),
    Column(
        "memory",
        "memory",
        "In use, of all.",
        _used_of,
        right=True,
        ratio=share("memory.availableBytes", "memory.totalBytes", free=True),
    ),
    Column("disk-free", "disk.availableBytes", "On the models volume.", size, right=True, spare=1),
    Column("work", "work", "Requests of its instances."),
)


def _instance_columns() -> list[Column]:
    titles = {"status": "state", "nodes": "where", "tasks": "requests"}
    found = INSTANCES.choose("model,status,nodes,detail,tasks,instance", wide=False)
    return [column._replace(name=titles.get(column.name, column.name)) for column in found]

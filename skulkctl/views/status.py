"""The whole cluster on one screen: a document, the problems in it, and its text. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from skulkctl.checks import TABLE, Facts, Finding, disk
from skulkctl.checks import lost as lost_members
from skulkctl.layout import pairs
from skulkctl.screen import paint, printable
from skulkctl.tables import EMPTY, Column, Resource, plain, render
from skulkctl.units import age_text, size_text
from skulkctl.views.instances import INSTANCES
from skulkctl.views.nodes import NO_ANSWER, Warn
from skulkctl.views.read import Document, either, flag, integer, mapping, number, sequence, text

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


def status_document(
    context: str | None,
    endpoint: str,
    state: object,
    nodes: Sequence[Document],
    instances: Sequence[Document],
    session: Document | None = None,
    lost: Sequence[Document] = (),
    warnings: Mapping[str, Sequence[Warn]] | None = None,
) -> dict[str, object]:
    """What `skulkctl status -o json` prints. `session` is the master's, where it is known."""
    facts = Facts(endpoint, nodes, instances, session=session, lost=lost, warnings=warnings)
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
        "lost": [dict(one) for one in lost],
        "master": masters[0]["name"] if masters else None,
        "session": session,
        "versions": sorted({str(node["version"]) for node in nodes if node["version"]}),
        "memory": _total(nodes, "memory"),
        "disk": _total(nodes, "disk"),
        "tracingEnabled": flag(state, "tracingEnabled"),
        "instances": list(instances),
        "problems": problems,
        "warnings": [entry for entry in found if not _is_problem(entry)],
    }


def _lost(facts: Facts) -> list[Document]:
    return [_from_check("lost", found) for found in lost_members(facts) if found.result == "fail"]


def _checked(facts: Facts) -> list[Document]:
    """The warnings of `doctor`, as far as the facts at hand go. A low disk is a health reason."""
    unread = [node for node in facts.nodes if integer(node, "disk", "availableBytes") is None]
    found = [(name, finding) for name in QUICK for finding in TABLE[name][0](facts)]
    found += [("disk", finding) for finding in disk(replace(facts, nodes=unread))]
    return [_from_check(name, finding) for name, finding in found if finding.result == "warn"]


def _from_check(name: str, found: Finding) -> Document:
    level = "error" if found.result == "fail" else "warn"
    return _problem(level, ", ".join(found.nodes) or EMPTY, name, found.message, found.hint)


def _silence(nodes: Sequence[Document]) -> list[Document]:
    return [
        _problem(
            "error",
            str(node["name"]),
            "no_answer",
            f"no answer: {node['error']}",
            f"skulkctl diagnose {node['name']}",
        )
        for node in nodes
        if node["error"]
    ]


def _other_sessions(nodes: Sequence[Document], session: Document | None) -> list[Document]:
    """Nodes that follow another master than the one who answers: a split, or an election."""
    own = text(session, "id")
    return [
        _problem(
            "error",
            str(node["name"]),
            "other_session",
            f"follows session {node['session']}, not {own}",
            "wait a few seconds; if it stays, check the network between the nodes",
        )
        for node in nodes
        if own and node["session"] and node["session"] != own
    ]


def _node_reasons(nodes: Sequence[Document]) -> list[Document]:
    return [
        _problem(
            LEVELS.get(text(reason, "code") or "") or str(node["health"] or "warn"),
            str(node["name"]),
            text(reason, "code") or "unknown",
            text(reason, "message") or "no message",
            text(reason, "remediation"),
        )
        for node in nodes
        for reason in sequence(node, "reasons") or _unexplained(node)
    ]


def _unexplained(node: Document) -> Sequence[object]:
    """A node that is not well and does not say why is still a problem."""
    if node["health"] in (None, "ok", NO_ANSWER):
        return ()
    return ({"code": "unexplained", "message": f"health is {node['health']}, no reason given"},)


def _instance_reasons(instances: Sequence[Document]) -> list[Document]:
    return [
        _problem(
            "error",
            f"{instance['modelId']} on {text(runner, 'node')}",
            "runner_failed",
            text(runner, "error") or "the runner gave no reason",
            None,
        )
        for instance in instances
        for runner in sequence(instance, "runners")
        if text(runner, "status") == "RunnerFailed"
    ]


def _draining(nodes: Sequence[Document]) -> list[Document]:
    return [
        _problem(
            "warn",
            str(node["name"]),
            "draining",
            "takes no new work",
            f"skulkctl undrain {node['name']}",
        )
        for node in nodes
        if node["draining"]
    ]


def _problem(
    level: str, where: str, code: str, message: str, remediation: str | None
) -> dict[str, object]:
    return {
        "level": level,
        "where": where,
        "code": code,
        "message": message,
        "remediation": remediation,
    }


def _is_problem(entry: Document) -> bool:
    return entry["level"] == "error"


def _total(nodes: Sequence[Document], what: str) -> Document | None:
    """Sums over the nodes that have a reading; None when none has, never a zero."""
    readings = [mapping(node, what) for node in nodes if node.get(what)]
    if not readings:
        return None
    return {
        "availableBytes": sum(integer(reading, "availableBytes") or 0 for reading in readings),
        "totalBytes": sum(integer(reading, "totalBytes") or 0 for reading in readings),
        "nodesMeasured": len(readings),
    }


def status_screen(document: Document, colour: bool, room: int | None = None) -> str:
    """The document for people."""
    lines = [
        ("cluster", _verdict(document, colour)),
        ("context", plain(document["context"])),
        ("endpoint", plain(document["endpoint"])),
        ("nodes", _nodes_line(document)),
        ("master", plain(document["master"])),
        *_session_line(mapping(document, "session")),
        ("version", ", ".join(str(v) for v in sequence(document, "versions")) or EMPTY),
        ("memory", _free_of(mapping(document, "memory"), document)),
        ("disk", _free_of(mapping(document, "disk"), document)),
        ("tracing", either(flag(document, "tracingEnabled"), "on", "off") or EMPTY),
    ]
    text_ = pairs(lines, room, label=8)
    instances = [entry for entry in sequence(document, "instances") if isinstance(entry, dict)]
    text_ += (
        "instances none\n"
        if not instances
        else "\n"
        + render(INSTANCES.choose(_INSTANCE_COLUMNS, False), instances, colour=colour, room=room)
    )
    shown = [
        entry
        for part in ("problems", "warnings")
        for entry in sequence(document, part)
        if isinstance(entry, dict)
    ]
    if shown:
        text_ += "\n" + render(PROBLEMS.columns, shown, colour=colour, room=room)
    return text_


def _verdict(document: Document, colour: bool) -> str:
    problems, warnings = len(sequence(document, "problems")), len(sequence(document, "warnings"))
    word, role = ("ok", "ok") if document["healthy"] else ("error", "problem")
    counts = f"{problems} problem{'' if problems == 1 else 's'}, "
    counts += f"{warnings} warning{'' if warnings == 1 else 's'}"
    return f"{paint(word, role) if colour else word}  {counts}"


def _session_line(session: Document) -> list[tuple[str, str]]:
    """None where the server cannot tell, as a stock one."""
    age_s = number(session, "ageSeconds")
    if age_s is None:
        return []
    return [("session", f"{printable(text(session, 'id') or EMPTY)}  for {age_text(age_s)}")]


def _nodes_line(document: Document) -> str:
    names = [printable(text(node, "name") or EMPTY) for node in sequence(document, "nodes")]
    lost = [printable(text(node, "name") or EMPTY) for node in sequence(document, "lost")]
    missing = f"; lost: {', '.join(lost)}" if lost else ""
    return f"{len(names)}  {', '.join(names)}".rstrip() + missing


def _free_of(total: Document, document: Document) -> str:
    available, all_of_it = integer(total, "availableBytes"), integer(total, "totalBytes")
    if available is None or all_of_it is None:
        return EMPTY
    measured, nodes = integer(total, "nodesMeasured") or 0, len(sequence(document, "nodes"))
    of = "" if measured == nodes else f", {measured} of {nodes} nodes measured"
    return f"{size_text(available)} free of {size_text(all_of_it)}{of}"

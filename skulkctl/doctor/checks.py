"""The checks of `doctor`: pure functions from gathered facts to findings.

They must not do I/O; `gather.py` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from skulkctl.doctor.facts import Facts, Finding
from skulkctl.nodes.rows import NodeItem, lost_text
from skulkctl.output.units import GIB, age_text, parse_time, size_text
from skulkd.wire.ids import NodeId

if TYPE_CHECKING:
    from skulkd.wire.cluster import NodeWarning

DISK_FLOOR_BYTES = 2 * GIB  # below it the daemon stops writing its event log
DISK_LOW_BYTES = 10 * GIB
STALE_S = 15.0  # peers call a node unreachable after this
CLOCK_WARN_S = 5.0
NODE_CLOCK_WARN_S = 10.0  # a slow answer looks like a slow clock, so allow more

CERTIFICATE_WARN_S = 30 * 86400.0

MEMBERS_PATH = "/v1/cluster"
STORAGE_PATH = "/store/storage/cluster"


def ready(facts: Facts) -> Iterator[Finding]:
    if "/readyz" in facts.lacks:
        yield Finding("skip", "this server has no /readyz")
    elif facts.not_ready is not None:
        yield Finding("fail", facts.not_ready, "wait a few seconds, then read the daemon's log")


def version(facts: Facts) -> Iterator[Finding]:
    known = {node["name"]: node["version"] for node in facts.nodes if node["version"]}
    unknown = [node["name"] for node in facts.nodes if not node["version"]]
    if unknown:
        yield Finding("warn", f"unknown version on {', '.join(unknown)}", "skulkctl nodes -o wide")
    if len(set(known.values())) > 1:
        versions = ", ".join(f"{name} has {version}" for name, version in sorted(known.items()))
        yield Finding("warn", versions, "install the same version on every node")
    elif known:
        yield Finding("ok", f"{next(iter(known.values()))} on {counted(len(known), 'node')}")


def cluster_size(facts: Facts) -> Iterator[Finding]:
    count = len(facts.nodes)
    names = ", ".join(node["name"] for node in facts.nodes)
    shown = f"{counted(count, 'node')}: {names}" if names else "no node"
    if facts.expected_nodes is not None and count != facts.expected_nodes:
        yield Finding(
            "fail", f"{shown}; {facts.expected_nodes} expected", "start skulkd on the missing nodes"
        )
    elif not count:
        yield Finding("fail", "the daemon lists no nodes, not even itself", "read its log")
    else:
        yield Finding("ok", shown)


def lost(facts: Facts) -> Iterator[Finding]:
    """Members that left without notice stay a problem until they are back or forgotten."""
    if MEMBERS_PATH in facts.lacks:
        yield Finding("skip", "this server has no /v1/cluster")
    for member in facts.lost:
        name = member.name
        hint = f"start skulkd on {name}; if it will not come back: skulkctl nodes forget {name}"
        yield Finding("fail", lost_text(member), hint, (name,))


def master(facts: Facts) -> Iterator[Finding]:
    """One master, and every node follows it."""
    if MEMBERS_PATH in facts.lacks:
        yield Finding("skip", "this server has no /v1/cluster")
        return
    own = facts.session.id if facts.session else None
    if own is None:
        yield Finding(
            "fail", "the node that skulkctl connects to has no master", "skulkctl nodes --watch"
        )
    masters = [node["name"] for node in facts.nodes if node["role"] == "master"]
    for node in facts.nodes:
        if own and node["session"] and node["session"] != own:
            message = f"{node['name']} follows session {node['session']}, not {own}"
            yield Finding("fail", message, "check the network between the nodes")
    if facts.session and masters:
        yield Finding("ok", f"{masters[0]} leads, for {age_text(facts.session.age_seconds)}")


def answers(facts: Facts) -> Iterator[Finding]:
    if "/v1/diagnostics/cluster" in facts.lacks:
        yield Finding("skip", "this server has no /v1/diagnostics/cluster")
    for node in facts.nodes:
        reason = facts.silent.get(NodeId(node["id"]))
        if reason is not None:
            yield Finding("fail", f"{node['name']} does not respond: {reason}", _look_at(node))


def fresh(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        seen_s = node["seenSecondsAgo"]
        if seen_s is None:
            yield Finding("warn", f"{node['name']} has never reported", _look_at(node))
        elif seen_s > STALE_S:
            message = f"{node['name']} last reported {age_text(seen_s)} ago"
            yield Finding("fail", message, "check its network, then restart its daemon")


def memory(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        if node["memory"] is None:
            message = f"no memory reading of {node['name']}; nothing can be placed there"
            yield Finding("warn", message, _look_at(node))


def disk(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        free = node["disk"]["availableBytes"] if node["disk"] else None
        name = node["name"]
        if free is None:
            yield Finding("warn", f"no disk reading of {name}", _look_at(node))
        elif free <= DISK_FLOOR_BYTES:
            message = f"{name} has {size_text(free)} free; the event log needs more than 2 GiB"
            yield Finding("fail", message, f"free space on {name}")
        elif facts.min_free_bytes is not None and free < facts.min_free_bytes:
            wanted = size_text(facts.min_free_bytes)
            yield Finding("fail", f"{name} has {size_text(free)} free, less than {wanted}")
        elif free < DISK_LOW_BYTES:
            message = f"{name} has {size_text(free)} free, less than 10 GiB"
            yield Finding("warn", message, f"free space on {name}")


def storage(facts: Facts) -> Iterator[Finding]:
    """The volume of staged copies, which need not be that of the models directory."""
    if facts.storage is None:
        yield Finding("skip", "this server does not report the storage of its nodes")
        return
    wanted = facts.min_free_bytes or 0
    for node in facts.storage:
        free, name = node["diskFreeBytes"], node["name"]
        if free is None or node["stagingRoot"] is None:
            continue
        message = f"{name} has {size_text(free)} free for staged models"
        hint = f"skulkctl purge-staging --node {name} --dry-run"
        if STORAGE_PATH in facts.lacks:
            hint = f"free space on {name}"  # such a server cannot say what a purge would delete
        if free <= DISK_FLOOR_BYTES:
            yield Finding("fail", f"{message}; staging will fail", hint)
        elif free < wanted:
            yield Finding("fail", f"{message}, less than {size_text(wanted)}", hint)
        elif free < DISK_LOW_BYTES:
            yield Finding("warn", f"{message}, less than 10 GiB", hint)


def health(facts: Facts) -> Iterator[Finding]:
    """What the nodes say of themselves, without what the checks above already tell."""
    for node in facts.nodes:
        for reason in node["reasons"]:
            if reason["code"] not in ("disk_full", "disk_low", "unreachable"):
                result = "fail" if node["health"] == "error" else "warn"
                message = f"{node['name']}: {reason['code']}: {reason['message']}"
                yield Finding(result, message, reason["remediation"])


def instances(facts: Facts) -> Iterator[Finding]:
    for instance in facts.instances:
        if instance["status"] == "waiting":
            message = f"{instance['modelId']} is not placed on any node: {instance['detail']}"
            yield Finding("fail", message, f"skulkctl preview {instance['modelId']}")
        elif instance["status"] != "ready":
            result = "fail" if instance["status"] == "failed" else "warn"
            message = f"{instance['modelId']} is {instance['status']}, {instance['ready']} ready"
            yield Finding(result, message, "skulkctl status")


def ranks(facts: Facts) -> Iterator[Finding]:
    """The same verdict that `skulkctl timeline` shows."""
    from skulkctl.verdict import State, assess

    if facts.timeline is None:
        yield Finding("skip", "this server has no timeline")
        return
    names = {node["id"]: node["name"] for node in facts.nodes}
    for found in assess(facts.timeline, names=names).findings:
        # Nodes that do not answer have a check of their own.
        if found.state is State.OK or (found.instance_id is None and found.rule == "D24"):
            continue
        what = f"{found.state} {found.rule}: {found.model_id or ''} {found.summary}"
        result = "fail" if found.is_problem else "warn"
        yield Finding(result, " ".join(what.split()), next(iter(found.next), "skulkctl timeline"))


def ring(facts: Facts) -> Iterator[Finding]:
    """MLX cannot encrypt its ring, so it should not cross a network that others can read."""
    for link in facts.open_ring_links:
        message = f"{link}: activations cross a public network in clear text"
        hint = "use WireGuard, Tailscale or a direct link between these nodes; see docs/cluster.md"
        yield Finding("warn", message, hint)


def blas(facts: Facts) -> Iterator[Finding]:
    """What runners without an accelerator compute with. A slow one is among the warnings."""
    names = {str(node["id"]): node["name"] for node in facts.nodes}
    rates: dict[str, float | None] = {}
    for runner in facts.timeline.runners if facts.timeline else ():
        if runner.compute is not None:
            node = names.get(runner.node_id, runner.node_id)
            rates.setdefault(f"{node}: {runner.compute.blas}", runner.compute.gflops)
    shown = [
        library if rate is None else f"{library}, {rate:.0f} GFLOP/s per core"
        for library, rate in sorted(rates.items())
    ]
    if shown:
        yield Finding("ok", "; ".join(shown))


def warnings(facts: Facts) -> Iterator[Finding]:
    if facts.warnings is None:
        yield Finding("skip", "this server has no diagnostics")
        return
    for warning, names in _by_warning(facts).items():
        hint = f"skulkctl diagnose {names[0]}"
        if warning.remediation:
            hint = f"on {', '.join(names)}: {warning.remediation}"
        yield Finding("warn", warning.message, hint, tuple(names))


def _by_warning(facts: Facts) -> dict[NodeWarning, list[str]]:
    """Each warning once, with the names of its nodes, without what is a health reason, too."""
    names: dict[NodeWarning, list[str]] = {}
    for node in facts.nodes:
        reasons = {reason["message"] for reason in node["reasons"]}
        for warning in (facts.warnings or {}).get(NodeId(node["id"]), ()):
            if warning.message not in reasons:
                names.setdefault(warning, []).append(node["name"])
    return names


def config(facts: Facts) -> Iterator[Finding]:
    if facts.config_problems is None:
        yield Finding("skip", "this server does not show its configuration")
        return
    for problem in facts.config_problems:
        yield Finding("fail", problem, "skulkctl config validate")


def clock(facts: Facts) -> Iterator[Finding]:
    if facts.clock_offset_s is None:
        yield Finding("skip", "the server does not report its time")
    elif abs(facts.clock_offset_s) > CLOCK_WARN_S:
        yield Finding("warn", _offset("the server", facts.clock_offset_s, "this machine"), _CLOCKS)
    for node in facts.nodes:
        skew_s = node["clockSkewSeconds"]
        if skew_s is not None and abs(skew_s) > CLOCK_WARN_S:
            reference = "the node that skulkctl connects to"
            yield Finding("warn", _offset(node["name"], skew_s, reference), _CLOCKS)
    for name, offset_s in facts.node_clock_offsets_s.items():
        if abs(offset_s) > NODE_CLOCK_WARN_S:
            yield Finding(
                "warn", _offset(name, offset_s, "the node that skulkctl connects to"), _CLOCKS
            )


def secrets(facts: Facts) -> Iterator[Finding]:
    if not facts.secret_modes:
        yield Finding("skip", "no secret file on this machine")
    for path, mode in facts.secret_modes.items():
        if mode & 0o077:
            message = f"{path} can be read by other users (mode {mode:04o})"
            yield Finding("fail", message, f"chmod 600 {path}")


def certificates(facts: Facts) -> Iterator[Finding]:
    """TLS certificates that the nodes have in use."""
    if MEMBERS_PATH in facts.lacks:
        yield Finding("skip", "this server does not report its certificates")
    for left_s, node, use in expiries(facts.nodes, facts.now):
        hint = f"skulkctl tls issue {node} --renew"
        if left_s <= 0:
            message = f"the {use} certificate of {node} expired {age_text(-left_s)} ago"
            yield Finding("fail", message, hint)
        elif left_s < CERTIFICATE_WARN_S:
            yield Finding(
                "warn", f"the {use} certificate of {node} expires {in_days(left_s)}", hint
            )


def expiries(nodes: Sequence[NodeItem], now: datetime) -> list[tuple[float, str, str]]:
    """Seconds left, node and use of every certificate of the nodes, the first to expire first."""
    return sorted(
        ((ends - now).total_seconds(), node["name"], one["use"])
        for node in nodes
        for one in node["certificates"]
        if (ends := parse_time(one["expiresAt"])) is not None
    )


def in_days(seconds: float) -> str:
    days = int(seconds // 86400)
    return f"in {days} day{'' if days == 1 else 's'}"


def first_to_expire(facts: Facts) -> str:
    found = expiries(facts.nodes, facts.now)
    if not found:
        return "no node uses TLS"
    left_s, node, use = found[0]
    return f"first to expire is the {use} certificate of {node}, {in_days(left_s)}"


def rotation(facts: Facts) -> Iterator[Finding]:
    """A forgotten drain looks like a cluster that is too small."""
    for node in facts.nodes:
        if node["draining"]:
            message = f"{node['name']} is draining and accepts no new work"
            yield Finding("warn", message, f"skulkctl undrain {node['name']}")


def swarm(facts: Facts) -> Iterator[Finding]:
    if "/v1/swarm" in facts.lacks:
        yield Finding("skip", "this server has no /v1/swarm")
    for problem in facts.swarm.problems if facts.swarm else ():
        yield Finding("fail", problem, "skulkctl swarm status")


def client(facts: Facts) -> Iterator[Finding]:
    yield Finding("ok", facts.client)


def least_free(part: Literal["memory", "disk"]) -> Callable[[Facts], str]:
    """A sentence about the node with the least free memory or disk."""

    def sentence(facts: Facts) -> str:
        free = [
            (reading["availableBytes"], node["name"])
            for node in facts.nodes
            if (reading := node[part]) is not None
        ]
        if not free:
            return "no node to ask"
        amount, name = min(free)
        return f"least free is {size_text(amount)} on {name}"

    return sentence


def gateway_node(facts: Facts) -> str:
    if facts.swarm is None or not facts.swarm.configured:
        return "not enrolled with a gateway"
    return f"{facts.swarm.state} as {facts.swarm.node_id}"


def always(sentence: str) -> Callable[[Facts], str]:
    return lambda facts: sentence


_CLOCKS = "synchronise the clocks of all machines with NTP"


def _look_at(node: NodeItem) -> str:
    return f"skulkctl diagnose {node['name']}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _offset(node: str, offset_s: float, reference: str) -> str:
    direction = "ahead of" if offset_s > 0 else "behind"
    return f"the clock of {node} is {age_text(abs(offset_s))} {direction} {reference}"

"""`skulkctl restart`: replace one node's daemon, or one model's runners, by fresh ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import (
    DeadlinePassed,
    NotFound,
    PartialAnswer,
    Refused,
    RouteMissing,
    ServerFailed,
    UsageMistake,
)
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import CONFIRM, FORMAT, REACH, verb
from skulkctl.stdout import write

if TYPE_CHECKING:
    from skulkctl.daemon.client import Daemon
    from skulkctl.daemon.state import ClusterState
    from skulkctl.placement.instances import InstanceItem

app = new_app()

WAIT_S = 300.0
POLL_S = 0.5

EXAMPLES = """
  skulkctl restart kite2
  skulkctl restart kite2 --wait --timeout 2m
  skulkctl restart kite1 --confirm kite1      the master, without a question
  skulkctl restart kite2 --dry-run
  skulkctl restart --instance 3fa9c1d2 --wait   a model that was given up, or hangs
"""


@verb(app, "restart", REACH, FORMAT, CONFIRM, examples=EXAMPLES)
def restart(
    call: Invocation,
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="[NODE]",
            help="Name, id, or 4 or more characters of the id.",
            show_default=False,
        ),
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option(
            "--instance",
            metavar="INSTANCE",
            help="Restart the runners of an instance instead: id, 4 or more characters, or model.",
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when the node, or the model, is back.")
    ] = False,
) -> int:
    """Restart the daemon of one node in place; it rejoins by itself under a new id.

    With --instance the runners of one placed model are started anew where they are instead:
    after "Not started again", once the cause is gone, or when a model hangs.

    Models on that node are unloaded. Asks first: y/N, or the node's name when it is the master
    of several nodes. With --wait, --timeout limits the whole wait (5m if not given); exit 6
    means that the time is up and the restart goes on.
    """
    from skulkctl.confirm import Danger, protect

    if (node is None) == (instance is None):
        raise UsageMistake("name a node, or a placed model with --instance")
    if instance is not None:
        from skulkctl.restarting import restart_instance

        return restart_instance(call, instance, wait)
    plan = _plan(call, str(node))
    if call.options.get("dry_run"):
        _report(call, plan, "would restart")
        for line in plan.consequences:
            call.talk.note(line)
        return ExitCode.DONE
    what = f"restart {plan.name} ({plan.node_id})"
    name = plan.name if plan.severe else None
    protect(call, what, Danger(what, name=name, why=plan.consequences))
    _ask_daemon(call.daemon, plan)
    if wait:
        _report(call, plan, "restarted", _wait_for_new_id(call, plan))
    else:
        _report(call, plan, "restarting")
        call.talk.note("accepted; it comes back under a new id:  skulkctl nodes")
    return ExitCode.DONE


@dataclass(frozen=True)
class Plan:
    """The node to restart and what that means for the cluster."""

    name: str
    node_id: str
    known_ids: frozenset[str]
    severe: bool
    consequences: tuple[str, ...]


def _plan(call: Invocation, typed: str) -> Plan:
    from skulkctl.daemon.members import Members
    from skulkctl.nodes.rows import find_node, node_items
    from skulkctl.placement.instances import instance_items

    state = call.daemon.state()
    master_id = call.daemon.master(state.node_ids)
    if master_id is None:
        call.talk.note("the master is not known")
    nodes = node_items(state, Members(master_id))
    found = find_node(nodes, typed, call.talk.note)
    node_id = found["id"]
    consequences = [
        f"it holds a part of {item['modelId']}, which stops answering"
        for item in instance_items(state)
        if _touches(item, node_id)
    ]
    # A node that cannot be told apart from the master is treated like it.
    severe = len(nodes) > 1 and found["role"] != "worker"
    if severe and found["role"] == "master":
        consequences.append(f"it is the master of {len(nodes)} nodes; another has to take over")
    return Plan(
        name=found["name"],
        node_id=node_id,
        known_ids=frozenset(item["id"] for item in nodes),
        severe=severe,
        consequences=tuple(consequences),
    )


def _touches(instance: InstanceItem, node_id: str) -> bool:
    return any(runner["nodeId"] == node_id for runner in instance["runners"])


def _ask_daemon(daemon: Daemon, plan: Plan) -> None:
    try:
        daemon.restart_node(plan.node_id)
    except RouteMissing:
        raise
    except (NotFound, Refused) as error:
        raise type(error)(
            f"cannot restart {plan.name}", *error.why, hints=error.hints, details=error.details
        ) from error
    except ServerFailed as error:
        raise PartialAnswer(
            f"cannot restart {plan.name}",
            *error.why,
            hints=["skulkctl nodes", f"on {plan.name} itself: restart skulkd"],
            details=error.details,
        ) from error


def _wait_for_new_id(call: Invocation, plan: Plan) -> str:
    """Poll until a node of that name has an id that was not there before."""
    from skulkctl.nodes.rows import node_items
    from skulkctl.polling import LOOK_S, poll_until
    from skulkctl.units import age_text

    def find(state: ClusterState) -> str | None:
        back = (node["id"] for node in node_items(state) if node["name"] == plan.name)
        return next((node_id for node_id in back if node_id not in plan.known_ids), None)

    limit_s = call.timeout_s(WAIT_S)
    call.talk.note(f"waiting for {plan.name} to come back, at most {age_text(limit_s)}")
    call.if_interrupted = f"{plan.name} goes on restarting"
    # No answer is normal while it restarts.
    found = poll_until(
        lambda left_s: call.daemon.within(min(LOOK_S, left_s)).state(),
        find,
        limit_s,
        every_s=POLL_S,
        patience_s=math.inf,
        on_error=lambda error: call.talk.detail(error.what),
    )
    if found is None:
        raise DeadlinePassed(
            f"{plan.name} is not back yet",
            f"no node of that name with a new id within {age_text(limit_s)}; the restart may go on",
            hints=["skulkctl nodes"],
        )
    return found


def _report(call: Invocation, plan: Plan, action: str, new_id: str | None = None) -> None:
    document = {
        "name": plan.name,
        "id": plan.node_id,
        "newId": new_id,
        "action": action,
        "dryRun": action == "would restart",
    }
    tail = f", now {new_id}" if new_id else ""
    line = f"{action} {plan.name} ({plan.node_id}){tail}\n"
    write(call.style.single("Restart", document, plan.name, lambda _: line))

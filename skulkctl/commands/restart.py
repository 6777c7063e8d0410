"""`skulkctl restart`: restart one node's daemon, or one model's runners."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Confirmation, Invocation, Output, Reach, new_app, values, verb
from skulkctl.errors import (
    CliError,
    DeadlinePassed,
    NotFound,
    PartialAnswer,
    Refused,
    RouteMissing,
    ServerFailed,
    UsageMistake,
)
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

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
  skulkctl restart kite1 --confirm kite1      the master, without a prompt
  skulkctl restart kite2 --dry-run
  skulkctl restart --instance 3fa9c1d2 --wait   an instance that failed or hangs
"""


@verb(app, "restart", Reach, Output, Confirmation, examples=EXAMPLES)
def restart(
    call: Invocation,
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="[NODE]",
            autocompletion=values.nodes,
            help="Node name, id, or an id prefix of 4 or more characters.",
            show_default=False,
        ),
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option(
            "--instance",
            metavar="INSTANCE",
            autocompletion=values.instances,
            help="Restart this instance's runners instead (id, prefix or model).",
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the node or the instance is ready again.")
    ] = False,
) -> int:
    """Restart the daemon of one node; it rejoins the cluster by itself with a new id.

    Models on that node are unloaded. Asks for confirmation: y/N, or the node's name if it is the
    master of several nodes. With --wait, --timeout limits the whole wait (default: 5m); exit 6
    means that the wait timed out and the restart continues.

    With --instance, restart the runners of one placed model on the same nodes instead: after
    fixing the cause of "Not started again", or when a model hangs.
    """
    from skulkctl.cli.confirm import Danger, protect

    if (node is None) == (instance is None):
        raise UsageMistake("give a NODE, or a placed model with --instance")
    if instance is not None:
        return _restart_instance(call, instance, wait)
    plan = _plan(call, str(node))
    if call.dry_run:
        _report(call, plan, "would restart")
        for line in plan.consequences:
            call.messages.note(line)
        return ExitCode.DONE
    what = f"restart {plan.name} ({plan.node_id})"
    name = plan.name if plan.severe else None
    protect(call, what, Danger(what, name=name, why=plan.consequences))
    _ask_daemon(call.daemon, plan)
    if wait:
        _report(call, plan, "restarted", _wait_for_new_id(call, plan))
    else:
        _report(call, plan, "restarting")
        call.messages.note("accepted; the node rejoins with a new id:  skulkctl nodes")
    return ExitCode.DONE


@dataclass(frozen=True)
class Plan:
    """The node to restart, and the effects on the cluster."""

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
        call.messages.note("the master is not known")
    nodes = node_items(state, Members(master_id))
    found = find_node(nodes, typed, call.messages.note)
    node_id = found["id"]
    consequences = [
        f"it holds a part of {item['modelId']}, which stops responding"
        for item in instance_items(state)
        if _touches(item, node_id)
    ]
    # A node that cannot be told apart from the master is treated like it.
    severe = len(nodes) > 1 and found["role"] != "worker"
    if severe and found["role"] == "master":
        consequences.append(f"it is the master of {len(nodes)} nodes; another node must take over")
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
        raise _refused(plan.name, error) from error
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
    from skulkctl.output.progress import Part, Progress
    from skulkctl.output.units import age_text
    from skulkctl.polling import LOOK_S, poll_until

    def find(state: ClusterState) -> str | None:
        back = (node["id"] for node in node_items(state) if node["name"] == plan.name)
        return next((node_id for node_id in back if node_id not in plan.known_ids), None)

    limit_s = call.timeout_s(WAIT_S)
    call.messages.note(f"waiting for {plan.name} to rejoin, at most {age_text(limit_s)}")
    call.if_interrupted = f"{plan.name} continues restarting"
    with Progress(call.quiet, on_pipes=False) as line:
        line.show("restart", "", [Part(plan.name, "restarting")])
        # No answer is normal while it restarts.
        found = poll_until(
            lambda left_s: call.daemon.within(min(LOOK_S, left_s)).state(),
            find,
            limit_s,
            every_s=POLL_S,
            patience_s=math.inf,
            on_error=lambda error: call.messages.detail(error.what),
        )
    if found is None:
        raise DeadlinePassed(
            f"{plan.name} is not back yet",
            f"no node of that name with a new id within {age_text(limit_s)}; it may still restart",
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


def _restart_instance(call: Invocation, typed: str, wait: bool) -> int:
    """New processes on the same nodes. Asks first when that ends something that works."""
    from skulkctl.cli.confirm import Danger, protect
    from skulkctl.placement.instances import find_instance, instance_items, short_instance
    from skulkctl.placement.waiting import Goal, wait_for

    item = find_instance(instance_items(call.daemon.state()), typed, call.messages.note)
    if call.dry_run:
        _report_instance(call, item, "would restart")
        return ExitCode.DONE
    what = f"restart the runners of {_instance_name(item)}"
    works = item["status"] != "failed"
    why = (f"it is {item['status']}; {item['tasks']} requests on it end with an error",)
    protect(call, what, Danger(what, why=why) if works else None)
    _ask_for_new_runners(call.daemon, item)
    if wait:
        found = wait_for(call, Goal(item["id"], item["modelId"], patient=True))
        _report_instance(call, found or item, "restarted")
    else:
        _report_instance(call, item, "restarting")
        call.messages.hint(f"skulkctl wait {short_instance(item['id'])}")
    return ExitCode.DONE


def _ask_for_new_runners(daemon: Daemon, item: InstanceItem) -> None:
    from skulkctl.placement.plans import place_again

    try:
        daemon.restart_runners(item["id"])
    except RouteMissing as error:
        raise RouteMissing(
            "this server cannot restart an instance",
            hints=[f"unload and place it again:  {place_again(item['id'], item['modelId'])}"],
            details=error.details,
        ) from error
    except (NotFound, Refused) as error:
        raise _refused(_instance_name(item), error) from error


def _refused(name: str, error: NotFound | Refused) -> CliError:
    return type(error)(
        f"cannot restart {name}", *error.why, hints=error.hints, details=error.details
    )


def _instance_name(item: InstanceItem) -> str:
    from skulkctl.placement.instances import short_instance

    return f"{item['modelId']} ({short_instance(item['id'])})"


def _report_instance(call: Invocation, item: InstanceItem, action: str) -> None:
    document = {
        "id": item["id"],
        "modelId": item["modelId"],
        "nodes": item["nodes"],
        "status": item["status"],
        "action": action,
        "dryRun": action == "would restart",
    }
    line = f"{action} {_instance_name(item)} on {', '.join(item['nodes'])}\n"
    write(call.style.single("Restart", document, item["id"], lambda _: line))

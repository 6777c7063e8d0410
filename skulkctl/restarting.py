"""Starting the runners of one placed model anew: `skulkctl restart --instance`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skulkctl.errors import NotFound, Refused, RouteMissing
from skulkctl.exits import ExitCode
from skulkctl.stdout import write

if TYPE_CHECKING:
    from skulkctl.invocation import Invocation
    from skulkctl.placement.instances import InstanceItem


def restart_instance(call: Invocation, typed: str, wait: bool) -> int:
    """New processes on the same nodes. Asks first when that ends something that works."""
    from skulkctl.confirm import Danger, protect
    from skulkctl.placement.instances import find_instance, instance_items, short_instance
    from skulkctl.placement.waiting import Goal, wait_for

    item = find_instance(instance_items(call.daemon.state()), typed, call.talk.note)
    instance_id, model_id = item["id"], item["modelId"]
    name = f"{model_id} ({short_instance(instance_id)})"
    if call.options.get("dry_run"):
        _report(call, item, "would restart")
        return ExitCode.DONE
    what = f"restart the runners of {name}"
    works = item["status"] != "failed"
    why = (f"it is {item['status']}; {item['tasks']} requests on it end with an error",)
    protect(call, what, Danger(what, why=why) if works else None)
    _ask_daemon(call, instance_id, model_id, name)
    if wait:
        found = wait_for(call, Goal(instance_id, model_id, patient=True))
        _report(call, found or item, "restarted")
    else:
        _report(call, item, "restarting")
        call.talk.hint(f"skulkctl wait {short_instance(instance_id)}")
    return ExitCode.DONE


def _ask_daemon(call: Invocation, instance_id: str, model_id: str, name: str) -> None:
    from skulkctl.placement.plans import place_again

    try:
        call.daemon.restart_runners(instance_id)
    except RouteMissing as error:
        raise RouteMissing(
            "this server cannot restart an instance",
            hints=[f"unload and place it again:  {place_again(instance_id, model_id)}"],
            details=error.details,
        ) from error
    except (NotFound, Refused) as error:
        raise type(error)(
            f"cannot restart {name}", *error.why, hints=error.hints, details=error.details
        ) from error


def _report(call: Invocation, item: InstanceItem, action: str) -> None:
    from skulkctl.placement.instances import short_instance

    document = {
        "id": item["id"],
        "modelId": item["modelId"],
        "nodes": item["nodes"],
        "status": item["status"],
        "action": action,
        "dryRun": action == "would restart",
    }
    nodes = item["nodes"] if isinstance(item["nodes"], list) else []
    line = f"{action} {item['modelId']} ({short_instance(item['id'])}) on {', '.join(nodes)}\n"
    write(call.style.single("Restart", document, str(item["id"]), lambda _: line))

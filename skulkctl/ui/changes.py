"""What keys do to the cluster: each asks first, gathers evidence if that would be lost, then acts.

The rules are those of the commands: a hanging instance is captured before it is touched, and what
could cost much must be confirmed by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skulkctl.output.tables import plain
from skulkctl.placement.instances import InstanceItem, short_instance
from skulkctl.ui.dialogs import ChoiceScreen, ConfirmScreen, TextScreen, confirm
from skulkctl.verdict.ranks import Group, Rank

if TYPE_CHECKING:
    from skulkctl.nodes.rows import NodeItem
    from skulkctl.ui.actions import Actions
    from skulkctl.ui.app import SkulkApp
    from skulkd.wire.storage import PurgeResult


def show_log(app: SkulkApp, rank: Rank) -> None:
    """The last lines that a runner printed."""
    reader = app.setup.reader
    if reader is None:
        return

    async def fetch() -> None:
        rows = await app.attempt("no log lines", reader.log_lines(rank))
        if rows is not None:
            app.push_screen(TextScreen(f"log of {rank}", rows or ["nothing printed"]))

    app.run_worker(fetch(), group="act")


def capture(app: SkulkApp, group: Group, rank: Rank) -> None:
    """A bundle of one rank, in the current directory."""
    actions = app.setup.actions
    if actions is not None:
        app.notify(f"capturing {rank}, which takes a few seconds", markup=False)
        app.run_worker(_captured(app, actions, group, [rank]), group="act")


async def _captured(app: SkulkApp, actions: Actions, group: Group, ranks: Sequence[Rank]) -> bool:
    path = await app.attempt("no capture", actions.capture(group, ranks))
    if path is None:
        return False
    app.captured.add(group.instance_id)
    app.notify(str(path), title="captured", timeout=10, markup=False)
    return True


async def _evidence_first(app: SkulkApp, actions: Actions, group: Group, rank: Rank) -> bool:
    """Whether there is evidence of this instance; without it nothing is changed."""
    if group.instance_id in app.captured:
        return True
    return await _captured(app, actions, group, [rank])


def _first(app: SkulkApp, group: Group) -> str:
    if group.instance_id in app.captured:
        return ""
    return "It is captured first, because this changes its state."


def cancel(app: SkulkApp, group: Group, rank: Rank) -> None:
    """Have every rank drop the active task."""
    actions, task_id = app.setup.actions, group.task_id
    if actions is None or task_id is None:
        app.notify("no task is active here", severity="warning")
        return

    async def act() -> None:
        if not await _evidence_first(app, actions, group, rank):
            return
        answered = await app.attempt("not cancelled", actions.cancel(group, task_id))
        if answered is not None:
            app.notify(answered, title=f"task {task_id}", markup=False)
            app.action_refresh()

    why = f"Every rank of {group.model_id} drops task {task_id}. {_first(app, group)}".strip()
    command = f"skulkctl cancel {task_id}"
    confirm(app, ConfirmScreen(f"cancel task {task_id}", why, command), act)


def restart(app: SkulkApp, group: Group, rank: Rank) -> None:
    """New processes for the runners of an instance, on the same nodes."""
    actions = app.setup.actions
    if actions is None:
        return

    async def act() -> None:
        if not await _evidence_first(app, actions, group, rank):
            return
        answered = await app.attempt("not restarted", actions.restart(group.instance_id))
        if answered is not None:
            app.notify(answered, title=f"restarting {group.short}", markup=False)
            app.action_refresh()

    why = (
        f"The runners of {group.model_id} are replaced and load it again; its requests fail."
        f" {_first(app, group)}"
    ).strip()
    command = f"skulkctl api POST /v1/instances/{group.instance_id}/restart"
    confirm(app, ConfirmScreen(f"restart the ranks of {group.short}", why, command), act)


def delete(app: SkulkApp, item: InstanceItem) -> None:
    """Unload a model."""
    actions = app.setup.actions
    if actions is None:
        return
    group = _hanging(app, item["id"])

    async def act() -> None:
        if group is not None and not await _captured(app, actions, group, group.ranks):
            return
        answered = await app.attempt("not deleted", actions.delete(item["id"]))
        if answered is not None:
            app.notify(item["modelId"], title="deleting", markup=False)
            app.action_refresh()

    tasks = item["tasks"]
    lines = [f"{tasks} request{'' if tasks == 1 else 's'} will be cancelled."] if tasks else []
    lines.append(f"Its memory on {plain(item['nodes'])} is freed; its files stay.")
    lines += ["It hangs, and is captured first."] if group is not None else []
    name = short_instance(item["id"])
    screen = ConfirmScreen(
        f"delete {item['modelId']} ({name})", "\n".join(lines), f"skulkctl delete {name}"
    )
    confirm(app, screen, act)


def _hanging(app: SkulkApp, instance_id: str) -> Group | None:
    """The instance, if it hangs."""
    snapshot = app.snapshot
    finding = None if snapshot is None else snapshot.verdict.of(instance_id)
    if snapshot is None or finding is None or not finding.is_problem:
        return None
    return next((group for group in snapshot.groups if group.instance_id == instance_id), None)


def choose_drain(app: SkulkApp, names: Sequence[str]) -> None:
    """Drain one of these nodes; which one is asked where there are several."""
    snapshot = app.snapshot
    known = snapshot.cluster.nodes if snapshot and snapshot.cluster else ()
    nodes = {node["name"]: node for node in known if node["name"] in names}

    def chosen(name: str | None) -> None:
        if name is not None:
            drain(app, nodes[name])

    if len(nodes) == 1:
        chosen(next(iter(nodes)))
    elif nodes:
        app.push_screen(ChoiceScreen("drain which node?", list(nodes)), chosen)


def drain(app: SkulkApp, node: NodeItem) -> None:
    """Take a node out of rotation, or bring it back."""
    actions, draining = app.setup.actions, not node["draining"]
    if actions is None:
        return

    async def act() -> None:
        text = await app.attempt("not changed", actions.drain(node["id"], draining=draining))
        if text is not None:
            app.notify(text, title=node["name"], markup=False)
            app.action_refresh()

    verb = "drain" if draining else "undrain"
    why = (
        "It takes no new placements, requests or jobs; active work is finished."
        if draining
        else "It takes new work again."
    )
    command = f"skulkctl {verb} {node['name']}"
    confirm(app, ConfirmScreen(f"{verb} {node['name']}", why, command), act)


def purge(app: SkulkApp, model_id: str | None, node_id: str | None) -> None:
    """Ask for a dry run, show it, and purge what it named when the user agrees."""
    actions = app.setup.actions
    if actions is not None:
        app.run_worker(_plan_purge(app, actions, model_id, node_id), group="act")


async def _plan_purge(
    app: SkulkApp, actions: Actions, model_id: str | None, node_id: str | None
) -> None:
    from skulkctl.storage.purge import gains, purge_items, users_of
    from skulkd.wire.storage import PurgeRequest

    body: dict[str, object] = {"modelId": model_id} if model_id else {}
    body |= {"nodes": [node_id]} if node_id else {}
    dry_run = PurgeRequest.model_validate({**body, "dryRun": True})
    planned = await app.attempt("no dry run", actions.purge(dry_run))
    if planned is None:
        return
    wanted, kept = gains(planned), users_of(purge_items(planned))
    if not wanted:
        why = "; ".join(kept) or "nothing unused is staged there"
        app.notify(why, title="nothing to purge", severity="warning", markup=False)
        return

    async def act() -> None:
        done = await app.attempt("not purged", actions.purge(PurgeRequest.model_validate(body)))
        if done is not None:
            app.notify(_freed(done), title="purged", markup=False)
            if app.page is not None:
                app.page.refetch()

    severe = model_id is None and len(wanted) > 1
    name = (app.setup.context or "cluster") if severe else None
    lines = ["A dry run says what would be deleted:", *(f"  {line}" for line in wanted)]
    lines += [f"  kept: {line}" for line in kept[:5]]
    what = f"purge {model_id or 'all unused staged models'}"
    command = f"skulkctl purge-staging {model_id or ''}".rstrip()
    confirm(app, ConfirmScreen(what, "\n".join(lines), command, name), act)


def _freed(done: PurgeResult) -> str:
    from skulkctl.output.units import size_text

    freed = sum(node.freed_bytes for node in done.nodes)
    silent = [node.name or node.node_id for node in done.nodes if not node.ok]
    missing = f"; no answer from {', '.join(silent)}" if silent else ""
    return f"{size_text(freed)} freed{missing}"

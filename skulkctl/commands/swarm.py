"""`skulkctl swarm`: the mswarm gateway node of one daemon."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skulkctl.cli import Confirmation, Invocation, Output, Reach, new_app, verb
from skulkctl.errors import NotFound, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write
from skulkctl.output.tables import EMPTY
from skulkctl.swarm.options import Setup

if TYPE_CHECKING:
    from skulkd.wire.swarm import Heartbeat, SwarmEnroll, SwarmSetup, SwarmStatus

app = new_app("Offer the cluster's models through an mswarm gateway; no port is opened.")

Gateway = Annotated[
    str | None,
    typer.Option(
        "--gateway", metavar="URL", help="URL of the gateway (or MSWARM_GATEWAY_BASE_URL)."
    ),
]
ServerName = Annotated[
    str | None,
    typer.Option("--server-name", metavar="NAME", help="Name of this node at the gateway."),
]


@verb(
    app,
    "setup",
    Setup,
    Reach,
    Output,
    Confirmation,
    examples="""
  skulkctl swarm setup --api-key-stdin < owner.key
  MSWARM_API_KEY=... skulkctl swarm setup --max-concurrent-jobs 2
  skulkctl swarm setup --api-key-stdin --allow smollm2-135m-instruct < owner.key
""",
)
def setup(call: Invocation) -> int:
    """Enrol this node with a gateway, using an owner's key, and send one heartbeat.

    The key comes from stdin, --api-key or MSWARM_API_KEY; it is used once and not stored. The
    gateway's runtime token is stored in a file that only the daemon's user can read.
    """
    from skulkd.wire.swarm import SwarmSetup

    given = call.options(Setup)
    key = _owner_key(call, given.api_key, stdin=given.api_key_stdin)
    options = _named({n: v for n, v in asdict(given).items() if not n.startswith("api_key")})
    wanted = SwarmSetup(api_key=key, options=options)
    if call.dry_run:
        return _show_plan(call, wanted)
    _protect(call, "enrol this node with a gateway")
    return _show_heartbeat(call, call.daemon.swarm_setup(wanted))


@verb(
    app,
    "enroll",
    Reach,
    Output,
    Confirmation,
    examples="""
  skulkctl swarm enroll shn_0123 --token-stdin < token
  MSWARM_SELF_HOSTED_ENROLLMENT_TOKEN=... skulkctl swarm enroll shn_0123
""",
)
def enroll(
    call: Invocation,
    node_id: Annotated[
        str, typer.Argument(metavar="NODE_ID", help="Id of this node at the gateway.")
    ],
    token_stdin: Annotated[
        bool, typer.Option("--token-stdin", help="Read the one-time token from stdin.")
    ] = False,
    gateway: Gateway = None,
    server_name: ServerName = None,
) -> int:
    """Enrol with a node id and a one-time token instead of an owner's key.

    The token comes from stdin or from MSWARM_SELF_HOSTED_ENROLLMENT_TOKEN, never from an argument.
    """
    from skulkd.wire.swarm import SwarmEnroll

    token = _stdin_line() if token_stdin else None
    token = token or call.environ.get("MSWARM_SELF_HOSTED_ENROLLMENT_TOKEN", "").strip()
    if not token:
        raise UsageMistake("no one-time token", hints=["add  --token-stdin < FILE"])
    options = _named({"gateway": gateway, "server_name": server_name})
    wanted = SwarmEnroll(node_id=node_id, enrollment_token=token, options=options)
    if call.dry_run:
        return _show_plan(call, wanted)
    _protect(call, "enrol this node with a gateway")
    document = call.daemon.swarm_enroll(wanted).model_dump(mode="json", exclude_unset=True)
    write(call.style.single("Enrolment", document, node_id, lambda _: f"enrolled as {node_id}\n"))
    return ExitCode.DONE


@verb(
    app,
    "status",
    Reach,
    Output,
    examples="""
  skulkctl swarm status
  skulkctl swarm status --endpoint kite2 -o json
""",
)
def status(call: Invocation) -> int:
    """Show the gateway node of the daemon. Exit 7 if it has a problem."""
    return _show_status(call, call.daemon.swarm())


@verb(app, "run-once", Reach, Output, examples="\n  skulkctl swarm run-once -o json\n")
def run_once(call: Invocation) -> int:
    """Send one heartbeat now and show the result."""
    return _show_heartbeat(call, call.daemon.swarm_heartbeat())


@verb(app, "pause", Reach, Output, Confirmation, examples="\n  skulkctl swarm pause\n")
def pause(call: Invocation) -> int:
    """Stop requesting work from the gateway and finish active jobs. Persists across restarts."""
    return _switch(call, "stop requesting work from the gateway", paused=True)


@verb(app, "resume", Reach, Output, Confirmation, examples="\n  skulkctl swarm resume\n")
def resume(call: Invocation) -> int:
    """Request work from the gateway again."""
    return _switch(call, "request work from the gateway again", paused=False)


def _switch(call: Invocation, what: str, *, paused: bool) -> int:
    status = call.daemon.swarm()
    if not status.configured:
        raise NotFound(
            "this node is not enrolled with a gateway",
            hints=["skulkctl swarm setup --api-key-stdin < FILE"],
        )
    if call.dry_run:
        call.messages.note(f"would {what}; its state is {status.state or 'unknown'}")
        return ExitCode.DONE
    _protect(call, what)
    return _show_status(call, call.daemon.swarm_pause(paused=paused))


@verb(
    app,
    "leave",
    Reach,
    Output,
    Confirmation,
    examples="""
  skulkctl swarm leave --yes
  skulkctl swarm leave --force --yes      also while jobs are running; their results are lost
""",
)
def leave(
    call: Invocation,
    force: Annotated[
        bool,
        typer.Option("--force", help="Leave even if jobs are running or results are undelivered."),
    ] = False,
) -> int:
    """Leave the gateway and delete the enrolment. Models and cluster are not changed."""
    from skulkctl.cli.confirm import Danger, protect

    if call.dry_run:
        call.messages.note("would leave the gateway and delete the runtime token")
        return ExitCode.DONE
    why = ("the runtime token is deleted; enrolling again requires an owner's key",)
    protect(call, "leave the gateway", Danger("leave the gateway", why=why))
    left = call.daemon.swarm_leave(force=force)
    sentence = f"left as {left.node_id}\n" if left.node_id else "left the gateway\n"
    document = left.model_dump(mode="json", exclude_unset=True)
    write(call.style.single("Leave", document, left.node_id or "", lambda _: sentence))
    notification = left.gateway_notification
    if not notification.notified:
        reason = notification.error or "no token"
        call.messages.warning(f"the gateway could not be notified: {reason}")
    return ExitCode.DONE


def _owner_key(call: Invocation, given: str | None, *, stdin: bool) -> str | None:
    """None leaves it to the daemon's own environment."""
    if given is not None:
        call.messages.warning(
            "other users can read --api-key in the process list; use --api-key-stdin"
        )
    key = _stdin_line() if stdin else given or call.environ.get("MSWARM_API_KEY", "").strip()
    if stdin and not key:
        raise UsageMistake(
            "stdin is empty; expected the owner's key", hints=["--api-key-stdin < FILE"]
        )
    return key or None


def _stdin_line() -> str:
    return sys.stdin.readline().strip()


def _named(given: dict[str, Any]) -> dict[str, str | int | bool]:
    """Options that were given, by the reference's names."""
    return {name.replace("_", "-"): value for name, value in given.items() if value}


def _protect(call: Invocation, what: str) -> None:
    from skulkctl.cli.confirm import protect

    protect(call, what)


def _show_plan(call: Invocation, wanted: SwarmSetup | SwarmEnroll) -> int:
    from skulkctl.swarm.pages import plan_page

    plan = call.daemon.swarm_plan(wanted)
    document, room = plan.model_dump(mode="json"), call.style.room
    write(call.style.single("SetupPlan", document, "planned", lambda _: plan_page(plan, room)))
    return ExitCode.DONE


def _show_heartbeat(call: Invocation, heartbeat: Heartbeat) -> int:
    from skulkctl.swarm.pages import heartbeat_line

    document = heartbeat.model_dump(mode="json", exclude_unset=True)
    write(call.style.single("Heartbeat", document, "taken", lambda _: heartbeat_line(heartbeat)))
    return ExitCode.DONE


def _show_status(call: Invocation, status: SwarmStatus) -> int:
    from skulkctl.swarm.pages import status_page

    document, room = status.model_dump(mode="json"), call.style.room
    name = status.node_id or EMPTY
    write(call.style.single("SwarmStatus", document, name, lambda _: status_page(status, room)))
    if status.problems:
        return ExitCode.PROBLEM
    if not status.configured:
        call.messages.hint("skulkctl swarm setup --api-key-stdin < FILE")
    return ExitCode.DONE

"""`skulkctl swarm`: the mswarm gateway node of one daemon."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import NotFound, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import CONFIRM, FORMAT, REACH, verb
from skulkctl.stdout import write
from skulkctl.swarm_options import SETUP

if TYPE_CHECKING:
    from skulkctl.client import Client
    from skulkctl.views.read import Document

app = new_app("Offer the cluster's models through an mswarm gateway; no port is opened.")
GATEWAY_S = 30.0

Gateway = Annotated[
    str | None, typer.Option("--gateway", metavar="URL", help="Or MSWARM_GATEWAY_BASE_URL.")
]
ServerName = Annotated[
    str | None, typer.Option("--server-name", metavar="NAME", help="What the gateway calls it.")
]


@verb(
    app,
    "setup",
    SETUP,
    REACH,
    FORMAT,
    CONFIRM,
    examples="""
  skulkctl swarm setup --api-key-stdin < owner.key
  MSWARM_API_KEY=... skulkctl swarm setup --max-concurrent-jobs 2
  skulkctl swarm setup --api-key-stdin --allow smollm2-135m-instruct < owner.key
""",
)
def setup(call: Invocation) -> int:
    """Make this node known to a gateway with an owner's key, and send one heartbeat.

    The key comes from stdin, --api-key or MSWARM_API_KEY; it is used once and not kept. What the
    gateway gives in return is in a file of the daemon that only its user can read.
    """
    given = call.options
    key = _owner_key(call, given.get("api_key"), stdin=bool(given.get("api_key_stdin")))
    options = _named({name: given.get(name) for name in SETUP if not name.startswith("api_key")})
    body = {"options": options} | ({} if key is None else {"apiKey": key})
    if call.options.get("dry_run"):
        return _show_plan(call, "/v1/swarm/setup", body)
    _protect(call, "enrol this node with a gateway")
    report = _ask(call, "/v1/swarm/setup", body)
    _show_heartbeat(call, report)
    return ExitCode.DONE


@verb(
    app,
    "enroll",
    REACH,
    FORMAT,
    CONFIRM,
    examples="""
  skulkctl swarm enroll shn_0123 --token-stdin < token
  MSWARM_SELF_HOSTED_ENROLLMENT_TOKEN=... skulkctl swarm enroll shn_0123
""",
)
def enroll(
    call: Invocation,
    node_id: Annotated[str, typer.Argument(metavar="NODE_ID", help="The gateway's id for it.")],
    token_stdin: Annotated[
        bool, typer.Option("--token-stdin", help="Read the one-time token from stdin.")
    ] = False,
    gateway: Gateway = None,
    server_name: ServerName = None,
) -> int:
    """Enrol with a node id and a one-time token instead of an owner's key.

    The token comes from stdin or from MSWARM_SELF_HOSTED_ENROLLMENT_TOKEN, never from arguments.
    """
    token = _stdin_line() if token_stdin else None
    token = token or call.environ.get("MSWARM_SELF_HOSTED_ENROLLMENT_TOKEN", "").strip()
    if not token:
        raise UsageMistake("no one-time token", hints=["add  --token-stdin < FILE"])
    options = _named({"gateway": gateway, "server_name": server_name})
    body = {"nodeId": node_id, "enrollmentToken": token, "options": options}
    if call.options.get("dry_run"):
        return _show_plan(call, "/v1/swarm/enroll", body)
    _protect(call, "enrol this node with a gateway")
    report = _ask(call, "/v1/swarm/enroll", body)
    write(call.style.single("Enrolment", report, node_id, lambda _: f"enrolled as {node_id}\n"))
    return ExitCode.DONE


@verb(
    app,
    "status",
    REACH,
    FORMAT,
    examples="""
  skulkctl swarm status
  skulkctl swarm status --endpoint kite2 -o json
""",
)
def status(call: Invocation) -> int:
    """Show how the gateway node of the asked daemon stands. Exit 7 when something is wrong."""
    return _show_status(call, call.client.get("/v1/swarm"))


@verb(app, "run-once", REACH, FORMAT, examples="\n  skulkctl swarm run-once -o json\n")
def run_once(call: Invocation) -> int:
    """Send one heartbeat now and show what it told."""
    _show_heartbeat(call, _ask(call, "/v1/swarm/run-once", None))
    return ExitCode.DONE


@verb(app, "pause", REACH, FORMAT, CONFIRM, examples="\n  skulkctl swarm pause\n")
def pause(call: Invocation) -> int:
    """Ask the gateway for no more work; what runs is finished. Kept over restarts."""
    return _switch(call, "pause", "stop asking the gateway for work")


@verb(app, "resume", REACH, FORMAT, CONFIRM, examples="\n  skulkctl swarm resume\n")
def resume(call: Invocation) -> int:
    """Ask the gateway for work again."""
    return _switch(call, "resume", "ask the gateway for work again")


def _switch(call: Invocation, verb_name: str, what: str) -> int:
    from skulkctl.views.read import flag, text

    status = call.client.get("/v1/swarm")
    if flag(status, "configured") is False:
        raise NotFound(
            "this node is not enrolled with a gateway",
            hints=["skulkctl swarm setup --api-key-stdin < FILE"],
        )
    if call.options.get("dry_run"):
        call.talk.note(f"would {what}; its state is {text(status, 'state') or 'unknown'}")
        return ExitCode.DONE
    _protect(call, what)
    return _show_status(call, _gateway_client(call).change("POST", f"/v1/swarm/{verb_name}"))


@verb(
    app,
    "leave",
    REACH,
    FORMAT,
    CONFIRM,
    examples="""
  skulkctl swarm leave --yes
  skulkctl swarm leave --force --yes      also while jobs run; their results are lost
""",
)
def leave(
    call: Invocation,
    force: Annotated[
        bool, typer.Option("--force", help="Also when jobs run or results are owed.")
    ] = False,
) -> int:
    """Tell the gateway goodbye and forget the enrolment; models and cluster stay as they are."""
    from skulkctl.confirm import Danger, protect
    from skulkctl.views.read import flag, mapping, text

    if call.options.get("dry_run"):
        call.talk.note("would leave the gateway and delete the runtime token")
        return ExitCode.DONE
    why = ("the runtime token is deleted; coming back needs an owner's key",)
    protect(call, "leave the gateway", Danger("leave the gateway", why=why))
    report = _ask(call, "/v1/swarm/leave", {"force": force})
    node_id = text(report, "node_id") or ""
    sentence = f"left as {node_id}\n" if node_id else "left the gateway\n"
    write(call.style.single("Leave", report, node_id, lambda _: sentence))
    told = mapping(report, "gateway_notification")
    if not flag(told, "notified"):
        call.talk.warning(f"the gateway was not told: {text(told, 'error') or 'no token'}")
    return ExitCode.DONE


def _owner_key(call: Invocation, given: str | None, *, stdin: bool) -> str | None:
    """None leaves it to the daemon's own environment."""
    if given is not None:
        call.talk.warning("other users can read --api-key in the process list; use --api-key-stdin")
    key = _stdin_line() if stdin else given or call.environ.get("MSWARM_API_KEY", "").strip()
    if stdin and not key:
        raise UsageMistake("stdin holds no key", hints=["--api-key-stdin < FILE"])
    return key or None


def _stdin_line() -> str:
    return sys.stdin.readline().strip()


def _named(given: dict[str, object]) -> dict[str, object]:
    """Options that were given, by the reference's names."""
    return {name.replace("_", "-"): value for name, value in given.items() if value}


def _gateway_client(call: Invocation) -> Client:
    from skulkctl.client import Client

    # The daemon waits for the gateway, which may take its time.
    return Client(call.target, call.timeout_s(GATEWAY_S), call.talk.detail)


def _ask(call: Invocation, path: str, body: object) -> Document:
    from skulkctl.views.read import mapping

    return mapping(_gateway_client(call).change("POST", path, body), "report")


def _show_plan(call: Invocation, path: str, body: Document) -> int:
    """The daemon checks URL, options and key, and says what it would send; it sends nothing."""
    from skulkctl.views.swarm import plan_screen

    report = _ask(call, path, {**body, "dryRun": True})
    write(
        call.style.single(
            "SetupPlan", report, "planned", lambda _: plan_screen(report, call.style.room)
        )
    )
    return ExitCode.DONE


def _protect(call: Invocation, what: str) -> None:
    from skulkctl.confirm import protect

    protect(call, what)


def _show_heartbeat(call: Invocation, report: Document) -> None:
    from skulkctl.views.swarm import heartbeat_line

    write(call.style.single("Heartbeat", report, "taken", lambda _: heartbeat_line(report)))


def _show_status(call: Invocation, answer: object) -> int:
    from skulkctl.views.read import mapping, sequence, text
    from skulkctl.views.swarm import swarm_screen

    found = mapping(answer)
    name = text(found, "node_id") or "-"
    write(
        call.style.single(
            "SwarmStatus", found, name, lambda _: swarm_screen(found, call.style.room)
        )
    )
    if sequence(found, "problems"):
        return ExitCode.PROBLEM
    if not found.get("configured"):
        call.talk.hint("skulkctl swarm setup --api-key-stdin < FILE")
    return ExitCode.DONE

"""`ui --serve`: what is served, to whom, and what the operator is told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from skulkctl.errors import CliError, Refused
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import flush, write
from skulkctl.ui.options import Screen, context_name
from skulkctl.web.access import Address, needed_token, parse_address

if TYPE_CHECKING:
    from skulkctl.cli import Invocation


def serve_app(call: Invocation, page: str, typed: str | None, *, allow_changes: bool) -> int:
    """Serve until Ctrl-C. Raises CliError before anything listens."""
    address = parse_address(typed)
    context = call.target.context
    if allow_changes and context.protected:
        raise Refused(
            f"context {context.name} is protected, so --allow-changes is not possible",
            hints=["read-only:  skulkctl ui --serve"],
        )
    token = needed_token(address, call.target.token or call.target.local_secret)
    serve = _server()

    def ready(bound: Address) -> None:
        write(f"{bound.url}\n")
        flush()
        mode = "changes are allowed" if allow_changes else "read-only"
        call.messages.note(f"serving the application, {mode}; Ctrl-C stops it")
        if token is not None:
            call.messages.warning("the connection is not encrypted, and visitors send the token")
            call.messages.hint("through SSH instead:  ssh -L 52480:127.0.0.1:52480 HOST")

    title = " · ".join(part for part in ("skulkctl", context_name(call)) if part)
    serve(app_command(call, page, allow_changes), address, token, title, ready)
    call.messages.note("stopped serving")
    return ExitCode.DONE


def _server() -> Callable[..., None]:
    """Raises CliError when the extra is not installed."""
    try:
        from skulkctl.web.server import serve
    except ModuleNotFoundError as error:
        raise CliError(
            "skulkctl ui --serve needs textual-serve, which is not installed",
            f"missing module: {error.name}",
            hints=["pip install 'skulk-toolkit[web]'"],
        ) from error
    return serve


def app_command(call: Invocation, page: str, allow_changes: bool) -> list[str]:
    """The command line of the process behind a page."""
    from skulkctl.cli import Reach

    reach, screen = call.options(Reach), call.options(Screen)
    command = [sys.executable, "-m", "skulkctl", "ui", "--page", page]
    if reach.context:
        command += ["--context", reach.context]
    if reach.endpoint:
        command += ["--endpoint", reach.endpoint]
    if reach.timeout_s is not None:
        command += ["--timeout", f"{reach.timeout_s:g}s"]
    flags = {
        "--read-only": screen.read_only or not allow_changes,
        "--ascii": screen.ascii_only,
        "--slow": screen.slow,
    }
    return command + [flag for flag, given in flags.items() if given]

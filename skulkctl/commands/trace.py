"""`skulkctl trace`: switch tracing on and off, and look at what was measured."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import CliError, NotFound, PartialAnswer, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import CONFIRM, FORMAT, REACH, TABLE, verb
from skulkctl.stdout import write

ABOUT = "Measure where requests spend their time, rank by rank."

app = new_app(ABOUT)

TaskArgument = Annotated[
    str | None, typer.Argument(metavar="TASK", help="Task id, or a prefix that is unique.")
]
CommandOption = Annotated[
    str | None,
    typer.Option("--command", metavar="ID", help="The id that the chat completion answered with."),
]


@verb(app, "on", REACH, FORMAT, CONFIRM, examples="  skulkctl trace on\n")
def on(call: Invocation) -> int:
    """Trace new requests in the whole cluster. Leave it off in normal operation."""
    return _switch(call, enabled=True)


@verb(app, "off", REACH, FORMAT, CONFIRM, examples="  skulkctl trace off\n")
def off(call: Invocation) -> int:
    """Stop tracing new requests; those that run are not touched."""
    return _switch(call, enabled=False)


@verb(app, "status", REACH, FORMAT, examples="  skulkctl trace status\n")
def status(call: Invocation) -> int:
    """Say whether new requests are traced."""
    _say(call, call.client.get("/v1/tracing"))
    return ExitCode.DONE


def _switch(call: Invocation, *, enabled: bool) -> int:
    from skulkctl.confirm import protect
    from skulkctl.views.read import flag

    word = "on" if enabled else "off"
    if call.options.get("dry_run"):
        was = flag(call.client.get("/v1/tracing"), "enabled")
        document = {"enabled": enabled, "changed": was != enabled, "dryRun": True}
        already = f"; it is {word} already" if was == enabled else ""
        line = f"would switch tracing {word}{already}\n"
        write(call.style.single("Tracing", document, word, lambda _: line))
        return ExitCode.DONE
    protect(call, f"switch tracing {word}")
    answer = call.client.change("PUT", "/v1/tracing", {"enabled": enabled})
    _say(call, answer)
    if flag(answer, "enabled") != enabled:
        raise CliError(
            f"tracing is not {word} yet",
            "the master has not agreed within 2 s",
            hints=["skulkctl trace status", "skulkctl nodes"],
        )
    return ExitCode.DONE


def _say(call: Invocation, answer: object) -> None:
    from skulkctl.views.read import flag, mapping

    word = "on" if flag(answer, "enabled") else "off"
    write(call.style.single("Tracing", mapping(answer), word, lambda _: f"tracing is {word}\n"))


@verb(
    app, "list", REACH, FORMAT, TABLE,
    examples="  skulkctl trace list\n  skulkctl trace ls --model SmolLM2 --since 1h\n",
)  # fmt: skip
def list_(
    call: Invocation,
    model: Annotated[
        str | None, typer.Option("--model", metavar="TEXT", help="Only models whose id has this.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="AGE", help="Only newer ones, as 1h or 3d.")
    ] = None,
) -> int:
    """List the traces of all nodes, the newest first, one per task.

    A trace that lacks a rank's part is marked PARTIAL. Exit 8 when a node did not answer.
    """
    from skulkctl.views.traces import TRACES

    items, silent = _items(call)
    if model is not None:
        items = [one for one in items if model.lower() in str(one.get("modelId")).lower()]
    if since is not None:
        items = _newer(items, since)
    call.show_rows(TRACES, items)
    if silent:
        raise PartialAnswer("some nodes did not answer", *silent)
    return ExitCode.DONE


def _newer(items: list[dict[str, object]], typed: str) -> list[dict[str, object]]:
    from skulkctl.units import parse_duration

    try:
        age = timedelta(seconds=parse_duration(typed))
    except ValueError as error:
        raise UsageMistake(f"--since: {error}") from None
    limit = (datetime.now(UTC) - age).isoformat()[:19]
    return [one for one in items if str(one.get("createdAt")) >= limit]


def _items(call: Invocation) -> tuple[list[dict[str, object]], list[str]]:
    from skulkctl.views.traces import trace_items

    answer = call.client.get_first("/v1/cluster/traces", "/v1/traces/cluster")
    return trace_items(answer), _silent(answer)


def _silent(answer: object) -> list[str]:
    """Who did not answer, and why."""
    from skulkctl.views.read import sequence, text

    return [
        f"{text(one, 'nodeId')}: {text(one, 'error')}"
        for one in sequence(answer, "unreachableNodes")
    ]


def _path(call: Invocation, typed: str | None, command: str | None) -> str:
    from skulkctl.client import path_segment
    from skulkctl.views.traces import find_trace

    if (typed is None) == (command is None):
        raise UsageMistake("say which trace: TASK, or --command ID", hints=["skulkctl trace list"])
    task_id = find_trace(_items(call)[0], typed, command)
    return f"/v1/traces/cluster/{path_segment(task_id)}"


@verb(
    app, "show", REACH, FORMAT,
    examples="  skulkctl trace show 4be0\n  skulkctl trace show --command chatcmpl-91aa\n",
)  # fmt: skip
def show(call: Invocation, task: TaskArgument = None, command: CommandOption = None) -> int:
    """Draw a trace as a waterfall over its ranks."""
    import shutil
    import sys

    from skulkctl.views.read import mapping
    from skulkctl.views.traces import waterfall

    answer = mapping(call.client.get(_path(call, task, command)))
    columns = shutil.get_terminal_size((120, 24)).columns if sys.stdout.isatty() else 120
    name = str(answer.get("taskId"))
    write(call.style.single("Trace", answer, name, lambda wide: waterfall(answer, columns, wide)))
    return ExitCode.DONE


@verb(
    app, "stats", REACH, FORMAT, TABLE,
    examples="  skulkctl trace stats 4be0\n  skulkctl trace stats --command chatcmpl-91aa\n",
)  # fmt: skip
def stats(call: Invocation, task: TaskArgument = None, command: CommandOption = None) -> int:
    """Print how long each kind of work took, on all ranks together and on each.

    Spans lie inside each other: TOTAL is the time in a kind of span with everything nested in it,
    SELF is without. The SELF times of one rank add up to the time that it was traced.
    """
    from skulkctl.views.read import mapping, number
    from skulkctl.views.trace_times import stats_document
    from skulkctl.views.traces import STATS, microseconds, stats_items

    answer = stats_document(mapping(call.client.get(_path(call, task, command))))
    if call.format in ("json", "yaml"):
        write(call.style.single("TraceStats", answer, "", lambda _: ""))
        return ExitCode.DONE
    call.show_rows(STATS, stats_items(answer))
    wall = microseconds(number(answer, "totalWallTimeUs"))
    call.talk.note(f"wall time {wall}; SELF is without nested spans, TOTAL with them")
    return ExitCode.DONE


@verb(
    app, "export", REACH, FORMAT,
    examples="  skulkctl trace export 4be0\n  skulkctl trace export 4be0 --file t.json\n",
)  # fmt: skip
def export(
    call: Invocation,
    task: TaskArgument = None,
    command: CommandOption = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="FILE", help="Where to; - is stdout.")
    ] = None,
) -> int:
    """Write a trace as a file that https://ui.perfetto.dev opens."""
    from skulkctl.daemon.answers import error_of

    path = _path(call, task, command)
    answer = call.client.send("GET", f"{path}/raw")
    if not answer.ok:
        raise error_of(answer)
    if file == "-":
        write(answer.body.decode())
        return ExitCode.DONE
    target = Path(file or f"trace_{path.rpartition('/')[2]}.json")
    try:
        target.write_bytes(answer.body)
    except OSError as error:
        raise CliError(f"cannot write {target}", str(error.strerror)) from error
    document = {"file": str(target), "bytes": len(answer.body)}
    write(call.style.single("TraceFile", document, str(target), lambda _: f"wrote {target}\n"))
    call.talk.hint("open it at https://ui.perfetto.dev")
    return ExitCode.DONE


@verb(app, "rm", REACH, FORMAT, CONFIRM, examples="  skulkctl trace rm 4be0 91aa --yes\n")
def rm(
    call: Invocation,
    tasks: Annotated[
        list[str], typer.Argument(metavar="TASK", help="Task ids, or 4 or more characters of each.")
    ],
) -> int:
    """Delete traces on every node. Exit 8 when a node did not answer and may keep its copy."""
    from skulkctl.confirm import Danger, protect
    from skulkctl.views.read import sequence
    from skulkctl.views.traces import find_trace

    items, silent = _items(call)
    try:
        found = [find_trace(items, typed, None, call.talk.note) for typed in tasks]
    except NotFound as error:
        error.why = (*error.why, *silent)
        raise
    ids = list(dict.fromkeys(found))
    if call.options.get("dry_run"):
        write("".join(f"would delete {one}\n" for one in ids))
        return ExitCode.DONE
    what = f"delete {len(ids)} trace{'' if len(ids) == 1 else 's'}"
    protect(call, what, Danger(what, why=tuple(ids)))
    answer = call.client.change("POST", "/v1/cluster/traces/delete", {"taskIds": ids})
    gone, quiet = [str(one) for one in sequence(answer, "deleted")], _silent(answer)
    told = "".join(f"deleted {one}\n" for one in gone)
    write(call.style.single("TracesDeleted", {"deleted": gone}, ",".join(gone), lambda _: told))
    if quiet:
        raise PartialAnswer("some nodes did not answer and may keep their copies", *quiet)
    return ExitCode.DONE

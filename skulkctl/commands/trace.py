"""`skulkctl trace`: switch tracing on and off, and show recorded traces."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Confirmation, Invocation, Output, Reach, Table, duration, new_app, verb
from skulkctl.errors import CliError, NotFound, PartialAnswer, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skulkd.wire.tracing import TraceSilence, TracingStateResponse

ABOUT = "Measure where requests spend their time, rank by rank."

app = new_app(ABOUT)

TaskArgument = Annotated[
    str | None, typer.Argument(metavar="TASK", help="Task id, or a unique prefix.")
]
CommandOption = Annotated[
    str | None,
    typer.Option(
        "--command", metavar="ID", help="Select the trace by the id of its chat completion."
    ),
]


@verb(app, "on", Reach, Output, Confirmation, examples="  skulkctl trace on\n")
def on(call: Invocation) -> int:
    """Trace new requests in the whole cluster. Leave it off in normal operation."""
    return _switch(call, enabled=True)


@verb(app, "off", Reach, Output, Confirmation, examples="  skulkctl trace off\n")
def off(call: Invocation) -> int:
    """Stop tracing new requests. Active requests are not affected."""
    return _switch(call, enabled=False)


@verb(app, "status", Reach, Output, examples="  skulkctl trace status\n")
def status(call: Invocation) -> int:
    """Show whether new requests are traced."""
    _show_switch(call, call.daemon.tracing())
    return ExitCode.DONE


def _switch(call: Invocation, *, enabled: bool) -> int:
    from skulkctl.cli.confirm import protect

    word = "on" if enabled else "off"
    if call.dry_run:
        was = call.daemon.tracing().enabled
        document = {"enabled": enabled, "changed": was != enabled, "dryRun": True}
        already = f"; it is already {word}" if was == enabled else ""
        line = f"would switch tracing {word}{already}\n"
        write(call.style.single("Tracing", document, word, lambda _: line))
        return ExitCode.DONE
    protect(call, f"switch tracing {word}")
    answer = call.daemon.switch_tracing(enabled=enabled)
    _show_switch(call, answer)
    if answer.enabled != enabled:
        raise CliError(
            f"tracing is not {word} yet",
            "the node has not yet received the change from the master",
            hints=["skulkctl trace status", "skulkctl nodes"],
        )
    return ExitCode.DONE


def _show_switch(call: Invocation, answer: TracingStateResponse) -> None:
    word = "on" if answer.enabled else "off"
    document = answer.model_dump(mode="json")
    write(call.style.single("Tracing", document, word, lambda _: f"tracing is {word}\n"))


@verb(
    app, "list", Reach, Output, Table,
    examples="  skulkctl trace list\n  skulkctl trace ls --model SmolLM2 --since 1h\n",
)  # fmt: skip
def list_(
    call: Invocation,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="TEXT",
            help="List only traces of models whose id contains this text.",
        ),
    ] = None,
    since_s: Annotated[
        float | None,
        typer.Option(
            "--since",
            metavar="AGE",
            parser=duration,
            help="List only traces newer than this (e.g. 1h, 3d).",
        ),
    ] = None,
) -> int:
    """List the traces of all nodes, one per task, newest first.

    A trace with missing ranks is marked PARTIAL. Exit 8 if a node did not respond.
    """
    from skulkctl.traces.rows import TRACES, trace_rows

    answer = call.daemon.traces()
    found = answer.traces
    if model is not None:
        found = [trace for trace in found if model.lower() in (trace.model_id or "").lower()]
    if since_s is not None:
        limit = _limit(timedelta(seconds=since_s))
        found = [trace for trace in found if trace.created_at[:19] >= limit]
    call.show_rows(TRACES, trace_rows(found))
    if answer.unreachable_nodes:
        raise PartialAnswer("some nodes did not respond", *_silent(answer.unreachable_nodes))
    return ExitCode.DONE


def _limit(age: timedelta) -> str:
    """The time so long ago, as traces have it."""
    return (datetime.now(UTC) - age).isoformat()[:19]


def _silent(nodes: Sequence[TraceSilence]) -> list[str]:
    """Who did not answer, and why."""
    return [f"{node.node_id}: {node.error}" for node in nodes]


def _find(call: Invocation, typed: str | None, command: str | None) -> str:
    from skulkctl.traces.rows import find_trace

    if (typed is None) == (command is None):
        raise UsageMistake("specify a trace: TASK, or --command ID", hints=["skulkctl trace list"])
    return find_trace(call.daemon.traces().traces, typed, command)


@verb(
    app, "show", Reach, Output,
    examples="  skulkctl trace show 4be0\n  skulkctl trace show --command chatcmpl-91aa\n",
)  # fmt: skip
def show(call: Invocation, task: TaskArgument = None, command: CommandOption = None) -> int:
    """Draw a trace as a waterfall over its ranks."""
    import shutil
    import sys

    from skulkctl.traces.rows import waterfall

    trace = call.daemon.trace(_find(call, task, command))
    columns = shutil.get_terminal_size((120, 24)).columns if sys.stdout.isatty() else 120
    document = trace.model_dump(mode="json")

    def page(wide: bool) -> str:
        return waterfall(trace.traces, columns, wide)

    write(call.style.single("Trace", document, trace.task_id, page))
    return ExitCode.DONE


@verb(
    app, "stats", Reach, Output, Table,
    examples="  skulkctl trace stats 4be0\n  skulkctl trace stats --command chatcmpl-91aa\n",
)  # fmt: skip
def stats(call: Invocation, task: TaskArgument = None, command: CommandOption = None) -> int:
    """Print the time spent per span category, for all ranks together and for each rank.

    Spans are nested: TOTAL is the time in spans of a category including nested spans, SELF is the
    time without them. The SELF times of one rank add up to its traced time.
    """
    from skulkctl.traces.rows import STATS, microseconds, stats_rows
    from skulkctl.traces.times import trace_stats

    found = trace_stats(call.daemon.trace(_find(call, task, command)))
    if call.format in ("json", "yaml"):
        write(call.style.single("TraceStats", found, "", lambda _: ""))
        return ExitCode.DONE
    call.show_rows(STATS, stats_rows(found))
    wall = microseconds(found["totalWallTimeUs"])
    call.messages.note(f"wall time {wall}; SELF is without nested spans, TOTAL with them")
    return ExitCode.DONE


@verb(
    app, "export", Reach, Output,
    examples="  skulkctl trace export 4be0\n  skulkctl trace export 4be0 --file t.json\n",
)  # fmt: skip
def export(
    call: Invocation,
    task: TaskArgument = None,
    command: CommandOption = None,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", help="Write to this file, or - for stdout."),
    ] = None,
) -> int:
    """Export a trace to a file that https://ui.perfetto.dev can open."""
    task_id = _find(call, task, command)
    content = call.daemon.trace_file(task_id)
    if file == "-":
        write(content.decode())
        return ExitCode.DONE
    target = Path(file or f"trace_{task_id.replace('/', '_')}.json")
    try:
        target.write_bytes(content)
    except OSError as error:
        raise CliError(f"cannot write {target}", str(error.strerror)) from error
    document = {"file": str(target), "bytes": len(content)}
    write(call.style.single("TraceFile", document, str(target), lambda _: f"wrote {target}\n"))
    call.messages.hint("open it at https://ui.perfetto.dev")
    return ExitCode.DONE


@verb(app, "rm", Reach, Output, Confirmation, examples="  skulkctl trace rm 4be0 91aa --yes\n")
def rm(
    call: Invocation,
    tasks: Annotated[
        list[str],
        typer.Argument(metavar="TASK", help="Task ids, or prefixes of 4 or more characters."),
    ],
) -> int:
    """Delete traces on every node. Exit 8 if a node did not respond and may keep its copy."""
    from skulkctl.cli.confirm import Danger, protect
    from skulkctl.traces.rows import find_trace

    answer = call.daemon.traces()
    try:
        found = [find_trace(answer.traces, typed, None, call.messages.note) for typed in tasks]
    except NotFound as error:
        error.why = (*error.why, *_silent(answer.unreachable_nodes))
        raise
    ids = list(dict.fromkeys(found))
    if call.dry_run:
        write("".join(f"would delete {task_id}\n" for task_id in ids))
        return ExitCode.DONE
    what = f"delete {len(ids)} trace{'' if len(ids) == 1 else 's'}"
    protect(call, what, Danger(what, why=tuple(ids)))
    result = call.daemon.delete_traces(ids)
    text = "".join(f"deleted {task_id}\n" for task_id in result.deleted)
    document = {"deleted": result.deleted}
    write(call.style.single("TracesDeleted", document, ",".join(result.deleted), lambda _: text))
    if result.unreachable_nodes:
        raise PartialAnswer(
            "some nodes did not respond and may keep their copies",
            *_silent(result.unreachable_nodes),
        )
    return ExitCode.DONE

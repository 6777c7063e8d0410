"""`skulkctl probe`: does a placed model answer, and how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import (
    CliError,
    NotFound,
    ProblemFound,
    RouteMissing,
    Unauthorised,
    Unreachable,
)
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, verb
from skulkctl.stdout import write

if TYPE_CHECKING:
    from skulkctl.chat_events import Reply

app = new_app()

PROBE_S = 60.0
TOKENS = 2

EXAMPLES = """
  skulkctl probe SmolLM2
  skulkctl probe -q || echo "the model does not answer"
  skulkctl probe SmolLM2 --timeout 5s -o json | jq .firstTokenSeconds
"""


@verb(app, "probe", REACH, FORMAT, examples=EXAMPLES)
def probe(
    call: Invocation,
    placed: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL", help="Id of a placed model or a part of it; optional if there is one."
        ),
    ] = None,
) -> int:
    """Ask a placed model for two tokens: does it answer, how soon, how fast.

    Exit 0 when it answers, 7 when it does not (failed, broke off, or nothing within --timeout,
    60s if not given), 3 when it is not placed, 4 when this server has no chat, 5 when no daemon
    answers.
    """
    from skulkctl.asking import Question, ask
    from skulkctl.chat_events import Reply
    from skulkctl.placement.instances import instance_items
    from skulkctl.placement.placed import choose_placed

    state = call.daemon.state()
    model_id = placed or "the model"
    try:
        model_id = choose_placed(instance_items(state), placed)["modelId"]
        reply = Reply(model_id)
        ask(call.client, Question(model_id, _body(model_id), call.timeout_s(PROBE_S)), reply)
    except (NotFound, RouteMissing, Unreachable, Unauthorised):
        raise
    except CliError as error:
        raise _problem(call, model_id, error) from error
    _report(call, reply)
    return ExitCode.DONE


def _body(model_id: str) -> dict[str, object]:
    return {
        "model": model_id,
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "stream": True,
    }


def _problem(call: Invocation, model_id: str, error: CliError) -> CliError:
    from skulkctl.errors import UsageMistake

    if isinstance(error, UsageMistake):
        return error
    if call.options.get("output") in ("json", "yaml", "jsonl"):
        reason = "; ".join(error.why) or error.what
        document = {"model": model_id, "ok": False, "error": reason}
        write(call.style.single("Probe", document, model_id, lambda _: ""))
    return ProblemFound(error.what, *error.why, hints=error.hints, details=error.details)


def _report(call: Invocation, reply: Reply) -> None:
    from skulkctl.chat_events import stats_text

    keys = ("model", "commandId", "finishReason", "promptTokens", "tokens", "firstTokenSeconds")
    speeds = ("seconds", "promptTokensPerSecond", "tokensPerSecond")
    answer = reply.document()
    document = {"ok": True, **{key: answer[key] for key in (*keys, *speeds)}, "error": None}
    line = f"ok  {reply.model_id}  {stats_text(reply)}\n"
    write(call.style.single("Probe", document, reply.model_id, lambda _: line))

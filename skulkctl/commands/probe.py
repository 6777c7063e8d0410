"""`skulkctl probe`: check that a placed model responds, and how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Invocation, Output, Reach, new_app, values, verb
from skulkctl.errors import (
    CliError,
    NotFound,
    ProblemFound,
    RouteMissing,
    Unauthorised,
    Unreachable,
    UsageMistake,
)
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

if TYPE_CHECKING:
    from skulkctl.chat.reply import Reply
    from skulkd.wire.chat import ChatCompletionRequest

app = new_app()

PROBE_S = 60.0
TOKENS = 2
_NOT_PROBED = ("text", "reasoning")

EXAMPLES = """
  skulkctl probe SmolLM2
  skulkctl probe -q || echo "the model does not respond"
  skulkctl probe SmolLM2 --timeout 5s -o json | jq .firstTokenSeconds
"""


@verb(app, "probe", Reach, Output, examples=EXAMPLES)
def probe(
    call: Invocation,
    placed: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            autocompletion=values.placed_models,
            help="Id or prefix of a placed model (default: the only placed model).",
        ),
    ] = None,
) -> int:
    """Check that a placed model responds, and how fast, by generating two tokens.

    Exit 0 if it responds, 7 if it does not (failed, incomplete, or timed out; --timeout, default:
    60s), 3 if it is not placed, 4 if this server does not support chat or the model makes
    embeddings, 5 if no daemon responds.
    """
    from skulkctl.chat.generation import generate
    from skulkctl.chat.reply import Reply
    from skulkctl.placement.placed import NoChatModel, choose_chat_model

    state = call.daemon.state()
    model_id = placed or "the model"
    try:
        model_id = choose_chat_model(state, placed)["modelId"]
        reply = Reply(model_id)
        call.if_interrupted = "the request has been cancelled"
        generate(call.daemon, _request(model_id), reply, limit_s=call.timeout_s(PROBE_S))
    except (NotFound, NoChatModel, RouteMissing, Unreachable, Unauthorised):
        raise
    except CliError as error:
        raise _problem(call, model_id, error) from error
    _report(call, reply)
    return ExitCode.DONE


def _request(model_id: str) -> ChatCompletionRequest:
    from skulkd.wire.chat import ChatCompletionMessage, ChatCompletionRequest

    message = ChatCompletionMessage(role="user", content="Say hello.")
    return ChatCompletionRequest(
        model=model_id, messages=[message], max_tokens=TOKENS, temperature=0, stream=True
    )


def _problem(call: Invocation, model_id: str, error: CliError) -> CliError:
    if isinstance(error, UsageMistake):
        return error
    if call.options(Output).is_document:
        reason = "; ".join(error.why) or error.what
        document = {"model": model_id, "ok": False, "error": reason}
        write(call.style.single("Probe", document, model_id, lambda _: ""))
    return ProblemFound(error.what, *error.why, hints=error.hints, details=error.details)


def _report(call: Invocation, reply: Reply) -> None:
    from skulkctl.chat.reply import stats_text

    answer = {key: value for key, value in reply.item().items() if key not in _NOT_PROBED}
    document = {"ok": True, **answer, "error": None}
    line = f"ok  {reply.model_id}  {stats_text(reply)}\n"
    write(call.style.single("Probe", document, reply.model_id, lambda _: line))

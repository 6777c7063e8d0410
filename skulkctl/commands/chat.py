"""`skulkctl chat`: send one prompt to a placed model, or start a conversation."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Invocation, Output, Reach, new_app, values, verb
from skulkctl.errors import UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

if TYPE_CHECKING:
    from skulkctl.chat.conversation import Conversation

app = new_app()

HISTORY_FILE = "chat_history"

EXAMPLES = """
  skulkctl chat skulk/SmolLM2-135M-Instruct "What is a skulk of foxes?"
  skulkctl chat                                  a conversation with the only placed model
  skulkctl chat SmolLM2 - --max-tokens 200 < question.txt
  skulkctl chat "Count to five." --seed 7 --temperature 0 -v
  skulkctl chat SmolLM2 "Two colours, please." -o json | jq -r .text
"""


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters, by their names in the API."""

    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            metavar="N",
            min=1,
            help="Generate at most N tokens.",
            show_default=False,
        ),
    ] = None
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            metavar="X",
            min=0,
            help="Sampling temperature; 0 always picks the most likely token.",
            show_default=False,
        ),
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option(
            "--top-p",
            metavar="X",
            min=0,
            max=1,
            help="Sample from the most likely tokens up to this total probability.",
            show_default=False,
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            help="Random seed; the same seed gives the same response.",
            show_default=False,
        ),
    ] = None
    stop: Annotated[
        list[str] | None,
        typer.Option(
            "--stop",
            metavar="TEXT",
            help="Stop generating at this text (repeatable).",
            show_default=False,
        ),
    ] = None


@verb(app, "chat", Sampling, Reach, Output, examples=EXAMPLES)
def chat(
    call: Invocation,
    placed: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            autocompletion=values.placed_models,
            help="Id or prefix of a placed model (default: the only placed model).",
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="Prompt, or - to read it from stdin."),
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", metavar="TEXT", help="Use this system prompt.")
    ] = None,
    no_stream: Annotated[
        bool,
        typer.Option(
            "--no-stream", help="Print the whole response at once, not while it is generated."
        ),
    ] = False,
) -> int:
    """Send a prompt to a placed model and print its response while it is generated.

    Only the response goes to stdout. Without PROMPT, start a conversation on a terminal, or read
    the prompt from stdin if it is not a terminal. A single argument that contains a space is the
    PROMPT. Ctrl-C cancels the request in the cluster. With -v, speed and reasoning go to stderr.
    --timeout limits the whole response. Exit 3: the model is not placed. Exit 4: it is an
    embedding model. Exit 1: the response is incomplete, and the error says whether to retry.
    """
    from skulkctl.chat.conversation import Conversation

    placed, prompt = read_arguments(placed, prompt)
    interactive = prompt is None and sys.stdin.isatty()
    if interactive and (not sys.stdout.isatty() or call.options(Output).is_document):
        raise UsageMistake(
            "a conversation requires a terminal and cannot be combined with -o; give a PROMPT",
            hints=['skulkctl chat MODEL "QUESTION"', "skulkctl chat MODEL - < FILE"],
        )
    text = None if interactive else _prompt_text(prompt)
    sampling = asdict(call.options(Sampling))
    conversation = Conversation(
        _model_id(call, placed),
        {key: value for key, value in sampling.items() if value is not None},
        system,
        stream=not no_stream,
    )
    if text is None:
        return _converse(call, conversation)
    return _ask_once(call, conversation, text)


def read_arguments(model: str | None, prompt: str | None) -> tuple[str | None, str | None]:
    """A single argument is the prompt when it is `-` or has a blank in it; no id has one."""
    if prompt is None and model is not None and (model == "-" or len(model.split()) > 1):
        return None, model
    return model, prompt


def _prompt_text(prompt: str | None) -> str:
    """The prompt; read from stdin when it was not given."""
    try:
        if prompt is None or prompt == "-":
            prompt = sys.stdin.buffer.read().decode()
        prompt.encode()
    except UnicodeError:
        raise UsageMistake("the prompt is not UTF-8 text") from None
    if not prompt.strip():
        raise UsageMistake("the prompt is empty", hints=['skulkctl chat MODEL "QUESTION"'])
    return prompt


def _model_id(call: Invocation, typed: str | None) -> str:
    from skulkctl.placement.placed import choose_chat_model

    item = choose_chat_model(call.daemon.state(), typed)
    if item["status"] == "starting":
        detail = item["detail"] or "starting"
        call.messages.note(
            f"{item['modelId']} is not ready yet ({detail}); the request waits until it is"
        )
    return item["modelId"]


def _limit_s(call: Invocation) -> float | None:
    return call.timeout_s(0.0) or None


def _converse(call: Invocation, conversation: Conversation) -> int:
    from skulkctl.chat.repl import PromptLines, Repl

    lines = PromptLines(call.paths.cache / HISTORY_FILE)
    return Repl(call, conversation, _limit_s(call), lines).run()


def _ask_once(call: Invocation, conversation: Conversation, prompt: str) -> int:
    from skulkctl.chat.generation import ReaderGone, generate
    from skulkctl.chat.reply import Reply, stats_text
    from skulkctl.chat.screen import ReplyScreen

    is_document = call.options(Output).is_document
    reply = Reply(conversation.model_id)
    screen = ReplyScreen(call.messages, terminal=sys.stdout.isatty())
    show = (lambda item: None) if is_document else screen.show
    call.if_interrupted = "the request has been cancelled"
    try:
        try:
            generate(call.daemon, conversation.request(prompt), reply, show, _limit_s(call))
        finally:
            screen.finish()
    except ReaderGone:
        return ExitCode.DONE
    if is_document:
        write(call.style.single("ChatAnswer", reply.item(), reply.text, lambda _: reply.text))
    if reply.finish_reason == "length" and "max_tokens" not in conversation.sampling:
        call.messages.note(
            f"cut off after {reply.tokens} tokens; for a longer response, add  --max-tokens N"
        )
    call.messages.detail(stats_text(reply))
    return ExitCode.DONE

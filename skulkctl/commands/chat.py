"""`skulkctl chat`: ask a placed model, once or in a conversation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, SAMPLING, verb
from skulkctl.stdout import write

if TYPE_CHECKING:
    from skulkctl.conversation import Conversation

app = new_app()

HISTORY_FILE = "chat_history"
DOCUMENTS = ("json", "yaml", "jsonl")

EXAMPLES = """
  skulkctl chat skulk/SmolLM2-135M-Instruct "What is a skulk of foxes?"
  skulkctl chat                                  a conversation with the only placed model
  skulkctl chat SmolLM2 - --max-tokens 200 < question.txt
  skulkctl chat "Count to five." --seed 7 --temperature 0 -v
  skulkctl chat SmolLM2 "Two colours, please." -o json | jq -r .text
"""


@verb(app, "chat", SAMPLING, REACH, FORMAT, examples=EXAMPLES)
def chat(
    call: Invocation,
    placed: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL", help="Id of a placed model or a part of it; optional if there is one."
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="Question; - reads it from stdin."),
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", metavar="TEXT", help="What the model is told first.")
    ] = None,
    no_stream: Annotated[
        bool, typer.Option("--no-stream", help="Ask for the whole answer at once.")
    ] = False,
) -> int:
    """Ask a placed model. Only the answer goes to stdout, as it is made.

    Without PROMPT it is a conversation on a terminal, and elsewhere the prompt is read from
    stdin. A single argument with a blank in it is the PROMPT. Ctrl-C cancels the answer in the
    cluster. With -v the speed, and what the model thinks, go to stderr. --timeout limits the
    whole answer. Exit 3: not placed; 1: the answer is incomplete, and whether to ask again.
    """
    from skulkctl.conversation import Conversation

    placed, prompt = read_arguments(placed, prompt)
    interactive = prompt is None and sys.stdin.isatty()
    if interactive and (not sys.stdout.isatty() or call.options.get("output") in DOCUMENTS):
        raise UsageMistake(
            "a conversation needs a terminal and no -o; give a PROMPT",
            hints=['skulkctl chat MODEL "QUESTION"', "skulkctl chat MODEL - < FILE"],
        )
    text = None if interactive else _prompt_text(prompt)
    sampling = {key: call.options.get(key) for key in SAMPLING}
    conversation = Conversation(
        _model_id(call, placed),
        {key: value for key, value in sampling.items() if value is not None and value != []},
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
    """What to ask; from stdin when it was not given."""
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
    from skulkctl.placement.instances import instance_items
    from skulkctl.placement.placed import choose_placed

    item = choose_placed(instance_items(call.daemon.state()), typed)
    if item["status"] == "starting":
        detail = item["detail"] or "starting"
        call.talk.note(f"{item['modelId']} is not ready yet ({detail}); the answer waits for it")
    return item["modelId"]


def _limit_s(call: Invocation) -> float | None:
    return call.timeout_s(0.0) or None


def _converse(call: Invocation, conversation: Conversation) -> int:
    from skulkctl.repl import Repl
    from skulkctl.typed_lines import TypedLines

    lines = TypedLines(call.paths.cache / HISTORY_FILE)
    return Repl(call, conversation, _limit_s(call), lines).run()


def _ask_once(call: Invocation, conversation: Conversation, prompt: str) -> int:
    from skulkctl.asking import Question, ReaderGone, ask
    from skulkctl.chat_events import Reply, stats_text
    from skulkctl.reply_screen import Manner, ReplyScreen

    as_document = call.options.get("output") in DOCUMENTS
    reply = Reply(conversation.model_id)
    screen = ReplyScreen(Manner(terminal=sys.stdout.isatty()), call.talk)
    question = Question(conversation.model_id, conversation.request(prompt), _limit_s(call))
    try:
        try:
            if as_document:
                ask(call.client, question, reply)
            else:
                ask(call.client, question, reply, screen.show)
                if not conversation.stream:
                    screen.show_whole(reply)
        finally:
            screen.finish()
    except ReaderGone:
        return ExitCode.DONE
    except KeyboardInterrupt:
        call.talk.warning("interrupted; the answer has been cancelled")
        return ExitCode.INTERRUPTED
    if as_document:
        write(call.style.single("ChatAnswer", reply.document(), reply.text, lambda _: reply.text))
    if reply.finish_reason == "length" and "max_tokens" not in conversation.sampling:
        call.talk.note(f"cut off after {reply.tokens} tokens; longer:  --max-tokens N")
    call.talk.detail(stats_text(reply))
    return ExitCode.DONE

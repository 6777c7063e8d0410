"""`skulkctl chat PROMPT` and `probe`: only the answer on stdout, exit codes that say why not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from typing import Any

import pytest

from skulkctl.commands.chat import read_arguments
from skulkctl.daemon.answers import Answer, Request
from skulkctl.daemon.chat import chat_error
from skulkctl.errors import ServerFailed
from tests.cli.conftest import Cli
from tests.cli.stock import HANG, Reply
from tests.cli_inference.model_node import (
    CHAT,
    COMMAND,
    HEAD,
    MODEL,
    READY,
    Frames,
    ModelNode,
    a_state,
    a_whole_answer,
    an_answer,
    an_empty_state,
    an_error,
    another_instance,
    chunk,
    comment,
    error_body,
)
from tests.daemon_process import wait_until
from tests.skulkctl_process import start_skulkctl

CANCEL = f"/v1/cancel/{COMMAND}"


def start(*arguments: str, **settings: Any) -> subprocess.Popen[bytes]:
    return start_skulkctl("chat", *arguments, **settings)


def test_only_the_answer_is_on_stdout(cli: Cli, node: ModelNode) -> None:
    node.chat = lambda seen: an_answer("Hello", " there", "!", thinking="a greeting")
    assert cli("chat", MODEL, "Hi") == (0, "Hello there!\n", "")
    assert node.bodies(CHAT) == [
        {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    ]


def test_an_answer_that_ends_its_line_gets_no_other_one(cli: Cli, node: ModelNode) -> None:
    node.chat = lambda seen: an_answer("Hello", "\n")
    assert cli("chat", MODEL, "Hi").out == "Hello\n"


def test_every_option_is_sent(cli: Cli, node: ModelNode) -> None:
    options = ["--system", "be brief", "--max-tokens", "9", "--temperature", "0", "--top-p", "0.5"]
    options += ["--seed", "7", "--stop", "END", "--stop", "x"]
    assert cli("chat", "llama", "Hi", *options).code == 0
    assert node.bodies(CHAT) == [
        {
            "model": MODEL,
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "Hi"},
            ],
            "stream": True,
            "max_tokens": 9,
            "temperature": 0,
            "top_p": 0.5,
            "seed": 7,
            "stop": ["END", "x"],
        }
    ]


@pytest.mark.parametrize(
    ("model", "prompt", "read"),
    [
        (None, None, (None, None)),
        ("m", None, ("m", None)),
        ("m", "hi", ("m", "hi")),
        ("what is it?", None, (None, "what is it?")),
        ("-", None, (None, "-")),
        ("a b", "hi", ("a b", "hi")),
    ],
)
def test_a_single_argument_with_a_blank_is_the_prompt(
    model: str | None, prompt: str | None, read: tuple[str | None, str | None]
) -> None:
    assert read_arguments(model, prompt) == read


@pytest.mark.parametrize("arguments", [(), ("-",), (MODEL,), (MODEL, "-")])
def test_the_prompt_may_come_from_stdin(
    process: Cli, node: ModelNode, arguments: tuple[str, ...]
) -> None:
    assert process("chat", *arguments, stdin="What is a für?\n") == (0, "Hello there!\n", "")
    assert node.bodies(CHAT)[0]["messages"][-1]["content"] == "What is a für?\n"


def test_an_empty_prompt_is_a_usage_mistake(process: Cli, node: ModelNode) -> None:
    assert process("chat", MODEL, stdin=" \n").code == 2
    assert process("chat", MODEL, "").code == 2
    assert not node.bodies(CHAT)


def test_a_prompt_that_is_no_text_is_a_usage_mistake(node: ModelNode) -> None:
    child = start("-", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    _, said = child.communicate(b"\xff\xfe", timeout=600)
    assert (child.returncode, said) == (2, b"error: the prompt is not UTF-8 text\n")


def test_verbose_tells_thoughts_and_speed_on_stderr(cli: Cli, node: ModelNode) -> None:
    node.chat = lambda seen: an_answer("Hello", "!", thinking="a greeting")
    result = cli("chat", MODEL, "Hi", "-v")
    assert (result.code, result.out) == (0, "Hello!\n")
    assert "\na greeting\n" in result.err
    assert "detail: 5 prompt tokens at 100.0/s, 2 tokens at 20.0/s, first after " in result.err


def test_a_cut_off_answer_is_noted_unless_it_was_asked_for(cli: Cli, node: ModelNode) -> None:
    node.chat = lambda seen: an_answer("Hello", end="length")
    assert cli("chat", MODEL, "Hi").err == (
        "note: cut off after 2 tokens; for a longer response, add  --max-tokens N\n"
    )
    assert cli("chat", MODEL, "Hi", "--max-tokens", "2").err == ""
    assert cli("chat", MODEL, "Hi", "-q") == (0, "Hello\n", "")


def test_json_is_one_document(cli: Cli, node: ModelNode) -> None:
    document = json.loads(cli("chat", MODEL, "Hi", "-o", "json").out)
    assert document["kind"] == "ChatAnswer"
    assert (document["text"], document["finishReason"], document["tokens"]) == (
        "Hello there!",
        "stop",
        2,
    )
    assert cli("chat", MODEL, "Hi", "-o", "jsonl").out.count("\n") == 1


def test_without_a_stream_the_answer_comes_at_once(cli: Cli, node: ModelNode) -> None:
    node.chat = None
    node.on("POST", CHAT, a_whole_answer("Hello!"))
    assert cli("chat", MODEL, "Hi", "--no-stream") == (0, "Hello!\n", "")
    assert node.bodies(CHAT)[0]["stream"] is False


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (error_body("runner died", 500), "  runner died\nhint: retrying may help\n"),
        (a_whole_answer("Hel", None), "  stream closed before it was complete"),
        (Reply(200, "", text=True), "  stream closed before it was complete"),
    ],
)
def test_a_failure_in_a_good_answer_is_exit_1(
    cli: Cli, node: ModelNode, answer: object, said: str
) -> None:
    node.chat = None
    node.on("POST", CHAT, answer)
    result = cli("chat", MODEL, "Hi", "--no-stream")
    assert result.code == 1
    assert said in result.err


@pytest.mark.parametrize(
    ("message", "code", "hint"),
    [
        ("runner shut down (signal=9)", 500, "retrying may help"),
        ("context_length_exceeded: 9 > 8", 400, "do not retry unchanged"),
    ],
)
def test_an_error_in_the_stream_keeps_the_text_and_says_why(
    cli: Cli, node: ModelNode, message: str, code: int, hint: str
) -> None:
    node.chat = lambda seen: an_error(message, code, chunk("Hel"))
    result = cli("chat", MODEL, "Hi")
    assert (result.code, result.out) == (1, "Hel\n")
    assert result.err.startswith(
        f"error: {MODEL} did not complete its response\n  {message}\nhint: {hint}"
    )


@pytest.mark.parametrize("broken", [False, True])
def test_a_stream_that_just_ends_is_exit_1(cli: Cli, node: ModelNode, broken: bool) -> None:
    node.chat = lambda seen: Frames([*HEAD, chunk("Hel")], broken)
    result = cli("chat", MODEL, "Hi")
    assert (result.code, result.out) == (1, "Hel\n")
    what = "connection closed mid-response" if broken else f"{MODEL} did not complete its response"
    assert result.err.startswith(f"error: {what}\n")


@pytest.mark.parametrize(
    ("reply", "code", "said"),
    [
        (
            Reply(404, error_body(f"No instance found for model {MODEL}", 404)),
            3,
            f"error: {MODEL} is not placed\n  No instance found for model {MODEL}\n"
            f"hint: skulkctl place {MODEL} --wait\n",
        ),
        (
            Reply(400, error_body("max_tokens must be positive", 400)),
            4,
            f"error: {MODEL} did not respond\n  max_tokens must be positive\n",
        ),
        (
            Reply(429, error_body("9 requests wait already", 429)),
            4,
            f"error: {MODEL} did not respond\n  9 requests wait already\n"
            "hint: retry later\nhint: skulkctl instances\n",
        ),
        (
            Reply(503, error_body("it has failed", 503)),
            1,
            f"error: {MODEL} did not respond\n  it has failed\n"
            "hint: retry later\nhint: skulkctl instances\n",
        ),
    ],
)
def test_a_refusal_before_the_first_word(
    cli: Cli, node: ModelNode, reply: Reply, code: int, said: str
) -> None:
    node.chat = None
    node.on("POST", CHAT, reply)
    assert cli("chat", MODEL, "Hi") == (code, "", said)


@pytest.mark.parametrize(
    ("headers", "hint"),
    [({"retry-after": "1"}, "retry in 1s"), ({}, "read the daemon's log")],
)
def test_a_lost_runner_is_worth_asking_again_and_another_500_is_not(
    headers: dict[str, str], hint: str
) -> None:
    body = json.dumps(error_body("signal=9 (SIGKILL)", 500)).encode()
    answer = Answer(Request("POST", CHAT), "http://127.0.0.1:1", 500, body, headers)
    error = chat_error(answer, MODEL)
    assert isinstance(error, ServerFailed)
    assert list(error.why) == ["signal=9 (SIGKILL)"]
    assert error.hints[0].startswith(hint)


def test_a_model_that_is_not_placed_is_exit_3_with_the_command(cli: Cli, node: ModelNode) -> None:
    assert cli("chat", "skulk/tiny-llama", "Hi") == (
        3,
        "",
        f"error: skulk/tiny-llama is not placed\n  placed: {MODEL}\n"
        "hint: skulkctl place skulk/tiny-llama --wait\n",
    )
    node.on("GET", "/state", an_empty_state())
    assert cli("chat", "What is it?").code == 3


def test_of_several_models_one_must_be_named(cli: Cli, node: ModelNode) -> None:
    state = another_instance(a_state(), "x", "skulk/tiny-llama")
    node.on("GET", "/state", state)
    assert cli("chat", "What is it?").code == 2
    assert cli("chat", "tiny", "What is it?").code == 0
    assert node.bodies(CHAT)[0]["model"] == "skulk/tiny-llama"


def test_a_model_that_is_loading_is_waited_for_with_a_note(cli: Cli, node: ModelNode) -> None:
    loading = {"RunnerLoading": {"layersLoaded": 3, "totalLayers": 8}}
    node.on("GET", "/state", a_state(READY, loading))
    result = cli("chat", MODEL, "Hi")
    assert (result.code, result.out) == (0, "Hello there!\n")
    assert result.err == (
        f"note: {MODEL} is not ready yet (loading 3/8); the request waits until it is\n"
    )


def test_no_daemon_is_exit_5(cli: Cli, node: ModelNode) -> None:
    assert cli("chat", MODEL, "Hi", "--endpoint", "127.0.0.1:1").code == 5
    assert cli("probe", MODEL, "--endpoint", "127.0.0.1:1").code == 5


def test_the_deadline_cancels_the_answer(cli: Cli, node: ModelNode) -> None:
    node.chat = lambda seen: Frames([*HEAD, chunk("Hel"), node.hang])
    result = cli("chat", MODEL, "Hi", "--timeout", "300ms")
    assert result == (
        6,
        "Hel\n",
        f"error: {MODEL} timed out\n"
        "  the response was not complete within 0.3s and has been cancelled\n"
        "hint: wait longer:  --timeout 10m\n"
        "hint: skulkctl instances\n",
    )
    assert node.asked("POST", CANCEL)


def test_a_flood_does_not_outwit_the_deadline(cli: Cli, node: ModelNode) -> None:
    flood = [comment("keep-alive") * 1000] * 500
    node.chat = lambda seen: Frames([*HEAD, *flood, *an_answer("late").pieces])
    assert cli("chat", MODEL, "Hi", "--timeout", "200ms").code == 6


def test_ctrl_c_cancels_the_answer_in_the_cluster(node: ModelNode) -> None:
    node.chat = lambda seen: Frames([*HEAD, chunk("Hel"), node.hang])
    child = start(MODEL, "Hi", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.read(3) == b"Hel"
    child.send_signal(signal.SIGINT)
    out, said = child.communicate(timeout=600)
    assert (child.returncode, out) == (130, b"\n")
    assert said == b"warning: interrupted; the request has been cancelled\n"
    assert node.asked("POST", CANCEL)


def test_a_reader_that_leaves_cancels_the_answer(node: ModelNode) -> None:
    gate = threading.Event()
    more = [chunk(" more")] * 20
    node.chat = lambda seen: Frames([*HEAD, chunk("Hel"), gate, *more, node.hang])
    reader, writer = os.pipe()
    child = start(MODEL, "Hi", stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert os.read(reader, 3) == b"Hel"
    os.close(reader)
    gate.set()
    _, said = child.communicate(timeout=600)
    assert (child.returncode, said) == (0, b"")
    wait_until(lambda: node.asked("POST", CANCEL), "the cancel")


def test_what_a_model_says_goes_through_a_pipe_as_it_is(cli: Cli, node: ModelNode) -> None:
    node.chat = lambda seen: an_answer("\x1b[31mred\u200d", "\x07")
    assert cli("chat", MODEL, "Hi").out == "\x1b[31mred\u200d\x07\n"


def test_probe_tells_that_it_works_and_how_fast(cli: Cli, node: ModelNode) -> None:
    result = cli("probe")
    assert result.code == 0
    assert result.out.startswith(f"ok  {MODEL}  5 prompt tokens at 100.0/s, 2 tokens at 20.0/s, ")
    (body,) = node.bodies(CHAT)
    assert (body["max_tokens"], body["model"]) == (2, MODEL)
    document = json.loads(cli("probe", MODEL, "-o", "json").out)
    assert (document["kind"], document["ok"], document["tokensPerSecond"]) == ("Probe", True, 20.0)


def test_probe_finds_a_model_that_does_not_answer(cli: Cli, node: ModelNode) -> None:
    node.chat = lambda seen: an_error("runner died", 500)
    result = cli("probe", MODEL, "-o", "json")
    assert result.code == 7
    assert json.loads(result.out)["error"] == "runner died"
    node.chat = lambda seen: Frames([*HEAD, node.hang])
    assert cli("probe", MODEL, "--timeout", "300ms").code == 7
    node.on("GET", "/state", a_state({"RunnerFailed": {"errorMessage": "no memory"}}))
    assert cli("probe", MODEL) == (
        7,
        "",
        f"error: {MODEL} (7f3c2a10) cannot respond\n"
        "  failed: no memory\n"
        "hint: skulkctl diagnose\n"
        f"hint: start again:  skulkctl delete 7f3c2a10 && skulkctl place {MODEL} --wait\n",
    )
    assert cli("probe", "nothing").code == 3


def test_a_node_that_takes_the_question_and_never_speaks_is_exit_6(
    cli: Cli, node: ModelNode
) -> None:
    node.chat = None
    node.on("POST", CHAT, HANG)
    assert cli("chat", MODEL, "Hi", "--timeout", "300ms").code == 6
    assert cli("chat", MODEL, "Hi", "--no-stream", "--timeout", "300ms").code == 6


@pytest.mark.parametrize("command", [("chat", MODEL, "Hi"), ("probe",), ("bench", MODEL)])
def test_an_embedding_model_is_refused_with_what_to_use(
    cli: Cli, node: ModelNode, command: tuple[str, ...]
) -> None:
    state = a_state(READY)
    for instance in state["instances"].values():
        for shard in instance["MlxRingInstance"]["shardAssignments"]["runnerToShard"].values():
            shard["PipelineShardMetadata"]["modelCard"]["tasks"] = ["TextEmbedding"]
    node.on("GET", "/state", state)
    result = cli(*command)
    assert result.code == 4
    assert f"{MODEL} is an embedding model and generates no text" in result.err
    assert "POST /v1/embeddings" in result.err
    assert not node.asked("POST", CHAT)

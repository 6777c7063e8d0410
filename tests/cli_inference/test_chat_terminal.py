"""`skulkctl chat` as a conversation: a real process on a real terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli_inference.model_node import (
    CHAT,
    COMMAND,
    HEAD,
    MODEL,
    Frames,
    ModelNode,
    a_whole_answer,
    an_answer,
    an_error,
    chunk,
)
from tests.cli_inference.terminal import CTRL_C, CTRL_D, Terminal, terminal

PLAIN = {"TERM": "dumb"}


def ask(screen: Terminal, question: str, answer: str) -> None:
    screen.expect(">>> ")
    screen.type(f"{question}\n")
    screen.expect(answer)


def test_a_conversation_remembers_and_ctrl_d_leaves(node: ModelNode) -> None:
    with terminal("chat", MODEL, "--system", "be brief", environ=PLAIN) as screen:
        screen.expect(f"{MODEL}: /help lists commands, Ctrl-D quits\n")
        ask(screen, "Hi", "Hello there!\n")
        ask(screen, "And now?", "Hello there!\n")
        screen.expect(">>> ")
        screen.type(CTRL_D)
        assert screen.leave() == 0
    first, second = node.bodies(CHAT)
    assert [entry["content"] for entry in first["messages"]] == ["be brief", "Hi"]
    assert [entry["content"] for entry in second["messages"]] == [
        "be brief",
        "Hi",
        "Hello there!",
        "And now?",
    ]


def test_ctrl_c_cancels_the_answer_and_not_the_program(node: ModelNode) -> None:
    node.chat = lambda seen: Frames([*HEAD, chunk("Once upon"), node.hang])
    with terminal("chat", environ=PLAIN) as screen:
        ask(screen, "A story", "Once upon")
        screen.type(CTRL_C)
        screen.expect("cancelled\n")
        node.chat = lambda seen: an_answer("Better")
        ask(screen, "Short", "Better\n")
        screen.expect(">>> ")
        screen.type("never sent" + CTRL_C)
        screen.expect("Ctrl-D quits\n")
        screen.expect(">>> ")
        screen.type(CTRL_D)
        assert screen.leave() == 0
    assert node.asked("POST", f"/v1/cancel/{COMMAND}")
    assert [entry["content"] for entry in node.bodies(CHAT)[-1]["messages"]] == [
        "A story",
        "Once upon",
        "Short",
    ]


def test_a_failed_answer_is_told_and_forgotten(node: ModelNode) -> None:
    node.chat = lambda seen: an_error("runner died", 500)
    with terminal("chat", environ=PLAIN) as screen:
        ask(screen, "Hi", "error: ")
        screen.expect("runner died\n")
        node.chat = lambda seen: an_error("context_length_exceeded: 9 > 8", 400)
        ask(screen, "Much", "do not retry unchanged")
        screen.expect("/reset clears the conversation\n")
        node.chat = lambda seen: an_answer("Back")
        ask(screen, "Again", "Back\n")
        screen.expect(">>> ")
        screen.type(CTRL_D)
        assert screen.leave() == 0
    assert len(node.bodies(CHAT)[-1]["messages"]) == 1


def test_thoughts_are_muted_and_a_model_cannot_drive_the_terminal(node: ModelNode) -> None:
    node.chat = lambda seen: an_answer("\x1b[31mred", "\x07!", thinking="hm")
    with terminal("chat") as screen:
        ask(screen, "Hi", "\x1b[2mhm\x1b[0m\n\n")
        screen.expect("?[31mred?!\n")
        screen.expect(">>> ")
        screen.type(CTRL_D)
        assert screen.leave() == 0
    with terminal("chat", "What is it?", environ=PLAIN) as screen:
        screen.expect("?[31mred?!\n")
        assert screen.leave() == 0
        assert "hm" not in screen.shown


def test_the_commands_of_a_conversation(node: ModelNode, tmp_path: Path) -> None:
    text, document = tmp_path / "talk.txt", tmp_path / "talk.json"
    with terminal("chat", environ=PLAIN) as screen:
        ask(screen, "/stats", "there is no response yet\n")
        ask(screen, "/help", "/save FILE      write the conversation")
        ask(screen, "/system be brief", "system: be brief\n")
        ask(screen, "/nonsense", "unknown command /nonsense; /help lists the commands\n")
        ask(screen, "Hi", "Hello there!\n")
        ask(screen, "/stats", "2 tokens at 20.0/s")
        ask(screen, f"/save {text}", f"saved to {text}\n")
        ask(screen, f"/save {text}", "already exists")
        ask(screen, f"/save {document}", "saved to")
        ask(screen, "/save /nonsense/x", "cannot write /nonsense/x: No such file or directory\n")
        ask(screen, "/save", "a file name is required")
        ask(screen, "/reset", "cleared: 1 answer\n")
        ask(screen, "/system -", "system: none\n")
        ask(screen, " /etc is a directory", "Hello there!\n")
        screen.expect(">>> ")
        screen.type(CTRL_D)
        assert screen.leave() == 0
    assert text.read_text() == "system:\nbe brief\n\nuser:\nHi\n\nassistant:\nHello there!\n"
    assert text.stat().st_mode & 0o777 == 0o600
    saved = json.loads(document.read_text())
    assert [entry["role"] for entry in saved["messages"]] == ["system", "user", "assistant"]
    assert node.bodies(CHAT)[-1]["messages"] == [{"role": "user", "content": "/etc is a directory"}]


def test_what_was_typed_is_there_the_next_time_and_private(node: ModelNode, home: Path) -> None:
    with terminal("chat", environ=PLAIN) as screen:
        ask(screen, "First question", "Hello there!\n")
        screen.expect(">>> ")
        screen.type(CTRL_D)
        assert screen.leave() == 0
    history = home / "chat_history"
    assert history.read_text() == '"First question"\n'
    assert history.stat().st_mode & 0o777 == 0o600
    pytest.importorskip("readline")
    with terminal("chat") as screen:
        screen.expect(">>> ")
        screen.type("\x1b[A")
        screen.expect("First question")
        screen.type("\n")
        screen.expect("Hello there!\n")
    assert node.bodies(CHAT)[-1]["messages"][-1]["content"] == "First question"


@pytest.mark.parametrize("content", ["not json", '{"a": 1}\n', "\xff"])
def test_a_damaged_history_does_not_matter(node: ModelNode, home: Path, content: str) -> None:
    (home / "chat_history").write_bytes(content.encode("latin-1"))
    with terminal("chat", environ=PLAIN) as screen:
        ask(screen, "Hi", "Hello there!\n")
    assert (home / "chat_history").read_text() == '"Hi"\n'


def test_without_a_stream_a_conversation_works_too(node: ModelNode) -> None:
    node.chat = None
    node.on("POST", CHAT, a_whole_answer("At once"))
    with terminal("chat", "--no-stream", environ=PLAIN) as screen:
        ask(screen, "Hi", "At once\n")


def test_progress_on_a_terminal_leaves_nothing_behind(node: ModelNode) -> None:
    with terminal("chat", "What is it?", environ={"TERM": "xterm", "COLUMNS": "100"}) as screen:
        shown = screen.expect("Hello there!")
        assert screen.leave() == 0
    assert "waiting for the model" in shown
    assert "3/5 tokens" in shown
    drawn = shown.rindex("3/5 tokens")
    assert shown[drawn:].endswith("\x1b[2KHello there!")


def test_a_dumb_terminal_gets_the_answer_only(node: ModelNode) -> None:
    with terminal("chat", "What is it?", environ=PLAIN) as screen:
        assert screen.expect("Hello there!\n") == "Hello there!\n"
        assert screen.leave() == 0


@pytest.mark.parametrize("arguments", [("-o", "json"), ("-o", "yaml")])
def test_a_conversation_has_no_other_format(node: ModelNode, arguments: tuple[str, str]) -> None:
    with terminal("chat", *arguments) as screen:
        assert screen.leave() == 2

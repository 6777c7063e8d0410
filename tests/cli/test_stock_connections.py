"""skulkctl reaches a stock Skulk 1.3.0 node, or something else, or nobody."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, save_context
from tests.cli.stock import HANG, KITE1, Reply, StockNode, error_body


def a_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_first_endpoint_that_answers_is_used(
    cli: Cli, stock: StockNode, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SKULK_ENDPOINT")
    dead = f"http://127.0.0.1:{a_free_port()}"
    save_context(home, dead, stock.url)
    assert cli("instances").err == ""
    result = cli("status", "-v")
    assert result.code == 8
    assert f"detail: {dead}: connection refused\n" in result.err
    assert result.out.startswith("error · lab · 3 nodes · master kite1 · ")
    assert cli("nodes", "--context", "lab", "-q").out == "kite1\nkite2\nkite3\n"


def test_when_no_endpoint_answers_every_one_is_named(cli: Cli, home: Path) -> None:
    one, two = a_free_port(), a_free_port()
    save_context(home, f"http://127.0.0.1:{one}", f"http://127.0.0.1:{two}")
    result = cli("nodes")
    assert result == (
        5,
        "",
        "error: no daemon reachable\n"
        f"  http://127.0.0.1:{one}: connection refused\n"
        f"  http://127.0.0.1:{two}: connection refused\n"
        f"hint: start one:  skulkd run --listen 127.0.0.1:{one}\n",
    )


def test_a_slow_answer_to_a_question_is_5_and_to_a_change_6(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/slow", HANG)
    stock.on("POST", "/slow", HANG)
    read = cli("api", "GET", "/slow", "--timeout", "300ms")
    assert read.code == 5
    assert "no answer within 0.3s" in read.err
    change = cli("api", "POST", "/slow", "--timeout", "300ms")
    assert change.code == 6
    assert "the change may still be carried out" in change.err


def test_something_that_is_not_a_skulk_node_is_exit_5(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/state", Reply(200, "<html>hello</html>", text=True))
    assert cli("nodes").code == 5
    stock.on("GET", "/state", ["a", "list"])
    assert cli("nodes").code == 5
    del stock.answers[("GET", "/state")]
    result = cli("nodes")
    assert result.code == 5
    assert f"error: {stock.url} is not a Skulk node\n" in result.err


def test_something_that_does_not_speak_http_is_exit_5(cli: Cli) -> None:
    import threading

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def talk_ssh() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")

        thread = threading.Thread(target=talk_ssh)
        thread.start()
        result = cli("nodes", "--endpoint", f"127.0.0.1:{port}")
        thread.join(300)
    assert result.code == 5
    assert "does not speak HTTP" in result.err


def test_a_plain_server_behind_https_is_told_as_tls(cli: Cli, stock: StockNode) -> None:
    result = cli("nodes", "--endpoint", stock.url.replace("http:", "https:"))
    assert result.code == 5
    assert "it responds, but does not speak TLS" in result.err


def test_a_host_that_does_not_exist_is_exit_5(cli: Cli) -> None:
    result = cli("nodes", "--endpoint", "no-such-host.invalid", "--timeout", "20s")
    assert result.code == 5
    assert "http://no-such-host.invalid:52415: " in result.err


def test_verbose_errors_name_request_endpoint_status_and_request_id(
    cli: Cli, stock: StockNode
) -> None:
    stock.on("GET", "/config", Reply(500, "Internal Server Error", text=True))
    result = cli("config", "show", "-v")
    assert result.code == 1
    assert "  request: GET /config\n" in result.err
    assert "  status: 500 Internal Server Error\n" in result.err
    assert "  request id: none given\n" in result.err
    assert "request id" not in cli("config", "show").err


def test_api_prints_the_raw_answer_also_of_an_error(cli: Cli, stock: StockNode) -> None:
    assert cli("api", "GET", "/node_id") == (0, f'"{KITE1}"', "")
    assert cli("api", "get", "/nothing") == (
        3,
        '{"detail": "Not Found"}',
        f"error: {stock.url} has no GET /nothing\n",
    )
    assert cli("api", "GET", "/node_id", "-o", "yaml").out == f"{KITE1}\n...\n"


def test_api_sends_a_body_from_the_line_or_a_file(cli: Cli, stock: StockNode, home: Path) -> None:
    stock.on("PUT", "/v1/tracing", {"enabled": True})
    assert cli("api", "PUT", "/v1/tracing?x=a b&y=ü", "-d", '{"enabled": true}').code == 0
    assert stock.seen[-1].body == b'{"enabled": true}'
    assert stock.seen[-1].path == "/v1/tracing?x=a%20b&y=%C3%BC"
    (home / "body.json").write_bytes(b"[1]")
    assert cli("api", "PUT", "/v1/tracing", "--data", f"@{home / 'body.json'}").code == 0
    assert stock.seen[-1].body == b"[1]"
    assert cli("api", "PUT", "/v1/tracing", "-d", "@/nowhere").code == 1


@pytest.mark.parametrize(
    "arguments",
    [("FETCH", "/state"), ("GET", "state"), ("GET", "http://kite1/state"), ("GET",), ()],
)
def test_api_that_makes_no_sense_is_usage(
    cli: Cli, stock: StockNode, arguments: tuple[str, ...]
) -> None:
    assert cli("api", *arguments).code == 2
    assert stock.seen == []


def test_the_token_is_sent_when_given_and_the_local_secret_not_to_loopback(
    cli: Cli, stock: StockNode, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "cluster.secret").write_text("local-secret-local-secret\n")
    cli("api", "GET", "/node_id")
    assert stock.seen[-1].authorization is None
    monkeypatch.setenv("SKULK_TOKEN", "given")
    cli("api", "GET", "/node_id")
    assert stock.seen[-1].authorization == "Bearer given"


def test_a_wrong_token_is_refused_with_a_hint_how_to_give_it(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/state", Reply(401, error_body("the secret is not the right one", 401)))
    result = cli("nodes")
    assert result.code == 4
    assert result.err.startswith(
        f"error: {stock.url} requires authentication\n  the secret is not the right one\nhint: "
    )
    assert "--token-file FILE" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("nodes", "-o", "xml"),
            "--output: 'xml' is not one of 'table', 'wide', 'json', ",
        ),
        (
            ("nodes", "--color", "sometimes"),
            "--color: 'sometimes' is not one of 'auto', 'al",
        ),
        (("nodes", "--timeout", "soon"), "--timeout: 'soon' is not a duration"),
        (("nodes", "--endpoint", "a:b"), "--endpoint: "),
        (("nodes", "--columns", "nam"), "no column named nam"),
        (("nodse",), "no such command 'nodse'; did you mean 'nodes'?"),
        (("context", "lst"), "no such command 'lst'; did you mean 'list'?"),
        (("nodes", "--colums", "x"), "--columns"),
        (("doctor", "--min-free", "much"), "--min-free: 'much' is not a size"),
        (("help", "me", "please"), "no command or topic named me please"),
        (
            ("completion", "tcsh"),
            "SHELL|install: 'tcsh' is not one of 'bash', 'zsh', 'fish', 'install'",
        ),
    ],
)
def test_a_mistyped_line_is_told_in_one_error(
    cli: Cli, stock: StockNode, arguments: tuple[str, ...], message: str
) -> None:
    result = cli(*arguments)
    assert result.code == (3 if arguments[0] == "help" else 2)
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert message in result.err

"""skulkctl against a stock Skulk 1.3.0 node: whole output, exit codes, what the server lacks."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from skulkctl.contexts import Context, ContextFile, write_contexts
from tests.cli.conftest import Cli
from tests.cli.stock import HANG, KITE1, KITE2, KITE3, Reply, Seen, StockNode, recorded


def error_body(message: str, code: int) -> dict[str, object]:
    return {"error": {"message": message, "type": "x", "param": None, "code": code}}


def save_context(home: Path, *endpoints: str, protected: bool = False) -> None:
    context = Context("lab", endpoints, protected=protected)
    write_contexts(home / "skulkctl.toml", ContextFile("lab", {"lab": context}))


def a_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_status_shows_the_cluster_on_one_screen(cli: Cli, stock: StockNode) -> None:
    assert cli("status") == (
        0,
        "cluster   ok  0 problems, 1 warning\n"
        "context   -\n"
        f"endpoint  {stock.url}\n"
        "nodes     3  kite1, kite2, kite3\n"
        "master    kite1\n"
        "version   1.3.0\n"
        "memory    60.0 GiB free of 96.0 GiB, 2 of 3 nodes measured\n"
        "disk      83.0 GiB free of 1.1 TiB, 2 of 3 nodes measured\n"
        "tracing   off\n"
        "\n"
        "INSTANCE  MODEL                                     READY  STATUS    NODES\n"
        "7f3c2a10  mlx-community/Llama-3.2-1B-Instruct-4bit  1/2    starting  kite1,kite2\n"
        "\n"
        "LEVEL  WHERE  PROBLEM   MESSAGE\n"
        "warn   kite2  disk_low  8.0 GiB free of 228.0 GiB\n",
        "",
    )


def test_status_check_tells_a_problem_by_its_exit_code(cli: Cli, stock: StockNode) -> None:
    assert cli("status", "--check").code == 0
    state = recorded("state")
    state["runners"]["run-a"] = {"RunnerFailed": {"errorMessage": "no memory"}}
    stock.on("GET", "/state", state)
    assert cli("status").code == 0
    result = cli("status", "--check", "-o", "json")
    assert result.code == 7
    assert json.loads(result.out)["healthy"] is False


def test_nodes_keeps_the_silent_node_as_a_row_and_exits_8(cli: Cli, stock: StockNode) -> None:
    result = cli("nodes", "--columns", "name,id,role,health,free,memory,disk,address")
    assert result == (
        8,
        "NAME   ID                ROLE    HEALTH        FREE   MEMORY     DISK  ADDRESS\n"
        "kite1  12D3KooWAa1fXk3J  master  ok         40.0GiB  64.0GiB  75.0GiB  192.168.1.5\n"
        "kite2  12D3KooWBb2gYm4K  worker  warn       20.0GiB  32.0GiB   8.0GiB  192.168.1.6\n"
        "kite3  12D3KooWBc3hZn5L  worker  NO ANSWER        -        -        -  -\n",
        "warning: kite3: no answer: ReadTimeout: timed out\n",
    )


def test_nodes_in_json_is_a_versioned_list(cli: Cli, stock: StockNode) -> None:
    document = json.loads(cli("nodes", "-o", "json", "--sort", "-name").out)
    assert (document["apiVersion"], document["kind"]) == ("skulkctl/v1", "NodeList")
    assert [item["id"] for item in document["items"]] == [KITE3, KITE2, KITE1]


@pytest.mark.parametrize("arguments", [("-o", "name"), ("-q",)])
def test_nodes_by_name_only_prints_names(
    cli: Cli, stock: StockNode, arguments: tuple[str, ...]
) -> None:
    assert cli("nodes", *arguments).out == "kite1\nkite2\nkite3\n"


def test_options_may_stand_before_the_command(cli: Cli, stock: StockNode) -> None:
    assert cli("-o", "jsonl", "nodes").out.count("\n") == 3
    assert cli("-o", "json", "nodes", "-o", "name").out == "kite1\nkite2\nkite3\n"


def test_nodes_of_a_server_without_cluster_diagnostics_are_shown_without_roles(
    cli: Cli, stock: StockNode
) -> None:
    del stock.answers[("GET", "/v1/diagnostics/cluster")]
    result = cli("nodes", "--columns", "name,role")
    assert result.code == 0
    assert result.out == "NAME   ROLE\nkite1  -\nkite2  -\nkite3  -\n"
    assert result.err.startswith("note: this server has no /v1/diagnostics/cluster")


def test_nodes_are_all_silent_when_nobody_can_be_asked(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/v1/diagnostics/cluster", Reply(500, "Internal Server Error", text=True))
    result = cli("nodes", "--columns", "name,health", "--no-headers")
    assert result.code == 8
    assert result.out == "kite1  NO ANSWER\nkite2  NO ANSWER\nkite3  NO ANSWER\n"


def test_an_empty_cluster_is_a_header_and_a_hint(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/state", {"lastSeen": {}, "lastEventAppliedIdx": -1})
    result = cli("nodes", "--columns", "name,health")
    assert (result.code, result.out) == (0, "NAME  HEALTH\n")
    assert result.err.startswith("hint: ")


def test_doctor_lists_every_check_and_exits_7(cli: Cli, stock: StockNode) -> None:
    result = cli("doctor", "--columns", "result,check", "--no-headers")
    assert result.code == 7
    assert [tuple(line.split()) for line in result.out.splitlines()] == [
        ("ok", "daemon"),
        ("skip", "ready"),
        ("warn", "version"),
        ("ok", "version"),
        ("ok", "cluster-size"),
        ("skip", "master"),
        ("fail", "answers"),
        ("ok", "fresh"),
        ("warn", "memory"),
        ("warn", "disk"),
        ("warn", "disk"),
        ("skip", "storage"),
        ("ok", "health"),
        ("warn", "instances"),
        ("skip", "ranks"),
        ("warn", "warnings"),
        ("ok", "rotation"),
        ("skip", "swarm"),
        ("ok", "config"),
        ("ok", "clock"),
        ("skip", "secrets"),
        ("ok", "client"),
    ]
    assert "hint: skulkctl diagnose kite3\n" in result.err
    assert result.err.endswith("note: 9 ok, 6 warn, 1 fail, 6 skip\n")


def test_doctor_with_warnings_only_is_well_unless_strict(cli: Cli, stock: StockNode) -> None:
    cluster = recorded("diagnostics_cluster")
    cluster["nodes"][2]["ok"] = True
    stock.on("GET", "/v1/diagnostics/cluster", cluster)
    assert cli("doctor").code == 0
    assert cli("doctor", "--strict").code == 7
    assert cli("doctor", "--expect-nodes", "3").code == 0
    assert cli("doctor", "--expect-nodes", "4", "-q").code == 7
    assert cli("doctor", "--min-free", "70GiB").code == 7


def test_doctor_quiet_names_what_was_found(cli: Cli, stock: StockNode) -> None:
    result = cli("doctor", "-q")
    assert result.out == "version\nanswers\nmemory\ndisk\ninstances\nwarnings\n"
    assert result.err == ""


def test_doctor_finds_a_broken_config_and_a_secret_for_all_to_read(
    cli: Cli, stock: StockNode, home: Path
) -> None:
    stock.on("GET", "/config", {"config": {"tracing": {"retention_days": "x"}}})
    (home / "cluster.secret").write_text("s3cret-s3cret-s3cret\n")
    (home / "cluster.secret").chmod(0o644)
    items = json.loads(cli("doctor", "-o", "json").out)["items"]
    failed = {item["check"]: item["hint"] for item in items if item["result"] == "fail"}
    assert set(failed) == {"answers", "config", "secrets"}
    assert failed["secrets"] == f"chmod 600 {home / 'cluster.secret'}"


def test_diagnose_shows_the_node_that_answers(cli: Cli, stock: StockNode) -> None:
    result = cli("diagnose")
    assert result.code == 0
    assert "  version       1.3.0 (commit 32275ad)\n" in result.out
    assert "  memory now    40.0 GiB free of 64.0 GiB\n" in result.out
    assert "  411  skulk   sleeping  1.5%  113.0MiB  2h2m  python -m skulk\n" in result.out
    assert result.out.endswith("WARNINGS\n  none\n")


def test_diagnose_of_another_node_goes_by_name_and_gives_the_data(
    cli: Cli, stock: StockNode
) -> None:
    document = json.loads(cli("diagnose", "kite1", "-o", "json").out)
    assert document["kind"] == "NodeDiagnostics"
    assert document["runtime"]["nodeId"] == KITE1
    assert stock.seen[-1].path == f"/v1/diagnostics/cluster/{KITE1}"


def test_diagnose_of_a_known_but_silent_node_exits_8(cli: Cli, stock: StockNode) -> None:
    assert cli("diagnose", "kite3") == (
        8,
        "",
        "error: kite3 did not answer\n"
        f"  Node diagnostics endpoint not reachable: {KITE3}\n"
        "hint: skulkctl nodes\n",
    )


def test_config_show_on_a_stock_node_says_that_origins_are_missing(
    cli: Cli, stock: StockNode
) -> None:
    result = cli("config", "show", "--origin")
    assert result.code == 0
    assert "model_store.staging.staging_keep_recent_gb  40              skulk.yaml\n" in result.out
    assert "hf_token                                    (hidden)        skulk.yaml\n" in result.out
    assert result.err.startswith("note: this server does not say where values come from")


def test_config_set_sends_the_whole_configuration_back(cli: Cli, stock: StockNode) -> None:
    stock.on("PUT", "/config", {"success": True, "message": "Saved.", "requiresRestart": True})
    result = cli("config", "set", "model_store.staging.staging_keep_recent_gb", "10")
    assert result == (
        0,
        "model_store.staging.staging_keep_recent_gb: 40 -> 10.0\n",
        "note: Saved.\nhint: it takes effect after a restart:  skulkctl restart NODE\n",
    )
    sent = json.loads(stock.seen[-1].body)
    expected = recorded("config")["config"]
    expected["model_store"]["staging"]["staging_keep_recent_gb"] = 10.0
    assert sent == {"config": expected}


def test_a_negative_value_may_follow_two_dashes(cli: Cli, stock: StockNode) -> None:
    result = cli("config", "set", "--dry-run", "--", "tracing.retention_days", "-1")
    assert result.out == "tracing.retention_days: - -> -1  (not written)\n"


def test_config_set_dry_run_sends_nothing(cli: Cli, stock: StockNode) -> None:
    result = cli("config", "set", "logging.enabled", "yes", "--dry-run")
    assert result.out == "logging.enabled: false -> true  (not written)\n"
    assert [seen.method for seen in stock.seen] == ["GET"]


def test_config_set_refused_by_the_server_is_exit_4(cli: Cli, stock: StockNode) -> None:
    stock.on("PUT", "/config", Reply(422, error_body("logging: not today", 422)))
    result = cli("config", "set", "logging.enabled", "true")
    assert result.code == 4
    assert "  logging: not today\n" in result.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("logging.enabled",), 2),
        (("logging.enabled", "true", "--unset"), 2),
        (("logging.enable", "true"), 3),
        (("logging.enabled", "maybe"), 4),
        (("hf_token", "hf_secret"), 2),
        (("hf_token", "@/nowhere"), 1),
    ],
)
def test_config_set_that_makes_no_sense_sends_nothing(
    cli: Cli, stock: StockNode, arguments: tuple[str, ...], code: int
) -> None:
    assert cli("config", "set", *arguments).code == code
    assert all(seen.method == "GET" for seen in stock.seen)


def test_a_secret_is_read_from_a_file_and_never_printed(
    cli: Cli, stock: StockNode, home: Path
) -> None:
    stock.on("PUT", "/config", {"success": True, "message": "Saved.", "requiresRestart": False})
    (home / "token").write_text("hf_0123456789\n")
    result = cli("config", "set", "hf_token", f"@{home / 'token'}", "-v")
    assert result.out == "hf_token: (hidden) -> (hidden)\n"
    assert "hf_0123456789" not in result.err
    assert json.loads(stock.seen[-1].body)["config"]["hf_token"] == "hf_0123456789"


def test_restart_of_a_worker_asks_and_without_a_terminal_names_the_flag(
    cli: Cli, stock: StockNode
) -> None:
    result = cli("restart", "kite2")
    assert result.code == 9
    assert result.err.endswith("hint: add  --yes\n")
    assert all(seen.method == "GET" for seen in stock.seen)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [((), 9), (("--yes",), 9), (("--confirm", "kite2"), 9), (("--confirm", "kite1"), 0)],
)
def test_restart_of_the_master_needs_its_name(
    cli: Cli, stock: StockNode, arguments: tuple[str, ...], code: int
) -> None:
    stock.on("POST", "/admin/restart", {"status": "restarting", "node_id": KITE1})
    result = cli("restart", "kite1", *arguments)
    assert result.code == code
    posts = [seen.path for seen in stock.seen if seen.method == "POST"]
    assert posts == ([] if code else [f"/admin/restart?node_id={KITE1}"])
    if code:
        assert result.err.endswith("hint: add  --confirm kite1\n")


def test_restart_when_the_master_is_not_known_is_as_careful(cli: Cli, stock: StockNode) -> None:
    del stock.answers[("GET", "/v1/diagnostics/node")]
    assert cli("restart", "kite2", "--yes").err.endswith("hint: add  --confirm kite2\n")


def test_restart_dry_run_tells_the_consequences_and_changes_nothing(
    cli: Cli, stock: StockNode
) -> None:
    result = cli("restart", "kite1", "--dry-run")
    assert (result.code, result.out) == (0, f"would restart kite1 ({KITE1})\n")
    assert "it is the master of 3 nodes" in result.err
    assert all(seen.method == "GET" for seen in stock.seen)


def test_restart_that_is_already_pending_is_refused(cli: Cli, stock: StockNode) -> None:
    pending = {"status": "restart_already_pending", "node_id": KITE2}
    stock.on("POST", "/admin/restart", Reply(409, pending))
    result = cli("restart", "kite2", "--yes")
    assert result.code == 4
    assert result.err == "error: cannot restart kite2\n  restart already pending\n"


def test_restart_wait_returns_when_the_name_has_a_new_id(cli: Cli, stock: StockNode) -> None:
    asked: list[Seen] = []

    def state(seen: Seen) -> object:
        document = recorded("state")
        if asked:
            for part in ("lastSeen", "nodeIdentities"):
                document[part]["12D3KooWZnew"] = document[part].pop(KITE2)
        return document

    def restart(seen: Seen) -> object:
        asked.append(seen)
        return {"status": "restart_sent", "node_id": KITE2}

    stock.on("GET", "/state", state)
    stock.on("POST", "/admin/restart", restart)
    result = cli("restart", "kite2", "--yes", "--wait", "--timeout", "30s")
    assert (result.code, result.out) == (0, f"restarted kite2 ({KITE2}), now 12D3KooWZnew\n")


def test_restart_wait_gives_up_at_its_deadline_with_exit_6(cli: Cli, stock: StockNode) -> None:
    stock.on("POST", "/admin/restart", {"status": "restart_sent", "node_id": KITE2})
    result = cli("restart", "kite2", "--yes", "--wait", "--timeout", "700ms")
    assert result.code == 6
    assert "the restart may go on" in result.err


def test_a_protected_context_wants_its_name_for_every_change(
    cli: Cli, stock: StockNode, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SKULK_ENDPOINT")
    save_context(home, stock.url, protected=True)
    stock.on("PUT", "/config", {"success": True, "message": "", "requiresRestart": False})
    stock.on("POST", "/admin/restart", {"status": "restart_sent", "node_id": KITE2})
    stock.on("POST", "/x", {})
    changes = [
        ("config", "set", "logging.enabled", "true"),
        ("restart", "kite2"),
        ("api", "POST", "/x"),
    ]
    for change in changes:
        refused = cli(*change, "--yes")
        assert refused.code == 9, change
        assert refused.err.endswith("hint: add  --confirm lab\n")
        assert cli(*change, "--confirm", "lab").code == 0, change
    assert cli("api", "GET", "/node_id").code == 0


def test_the_first_endpoint_that_answers_is_used(
    cli: Cli, stock: StockNode, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SKULK_ENDPOINT")
    dead = f"http://127.0.0.1:{a_free_port()}"
    save_context(home, dead, stock.url)
    assert cli("status").err == ""
    result = cli("status", "-v")
    assert result.code == 0
    assert f"detail: {dead}: connection refused\n" in result.err
    assert f"endpoint  {stock.url}\n" in result.out
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
        thread.join(30)
    assert result.code == 5
    assert "does not speak HTTP" in result.err


def test_a_plain_server_behind_https_is_told_as_tls(cli: Cli, stock: StockNode) -> None:
    result = cli("nodes", "--endpoint", stock.url.replace("http:", "https:"))
    assert result.code == 5
    assert ": TLS failed: " in result.err


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
        f"error: {stock.url} has no endpoint GET /nothing\n  Not Found\n",
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
        f"error: {stock.url} wants a token\n  the secret is not the right one\nhint: "
    )
    assert "--token-file FILE" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nodes", "-o", "xml"), "no output format named xml"),
        (("nodes", "--color", "sometimes"), "--color sometimes"),
        (("nodes", "--timeout", "soon"), "--timeout: 'soon' is not a duration"),
        (("nodes", "--endpoint", "a:b"), "--endpoint: "),
        (("nodes", "--columns", "nam"), "no column named nam"),
        (("nodse",), "no such command 'nodse'; did you mean 'nodes'?"),
        (("context", "lst"), "no such command 'lst'; did you mean 'list'?"),
        (("nodes", "--colums", "x"), "--columns"),
        (("doctor", "--min-free", "much"), "--min-free: 'much' is not a size"),
        (("help", "me", "please"), "no command or topic named me please"),
        (("completion", "tcsh"), "no completion for the shell tcsh"),
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

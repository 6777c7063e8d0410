"""What goes wrong with runners and clients, made to go wrong for real."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.daemon_process import wait_until
from tests.inference.served import DEADLINE_S, Served, together

# More than the suite will ever wait for: such a request ends only by what the test does.
ENDLESS = 4000


def open_stream(served: Served) -> tuple[Generator[str], str]:
    """A stream that has begun to say something, and its command id."""
    lines = served.lines(max_tokens=ENDLESS)
    command_id = ""
    for line in lines:
        if line.startswith(": command_id "):
            command_id = line.removeprefix(": command_id ")
        if line.startswith("data: "):
            return lines, command_id
    raise AssertionError("the stream ended before its first token")


def test_a_runner_killed_in_mid_stream_is_named_and_comes_back(fragile: Served) -> None:
    instance_id = fragile.place()
    lines, _ = open_stream(fragile)
    fragile.kill_runner()
    rest = [line for line in lines if line.startswith("data: ")]
    assert rest[-1] == "data: [DONE]"
    error = json.loads(rest[-2].removeprefix("data: "))["error"]
    assert (error["code"], error["type"]) == (500, "InternalServerError")
    assert "signal=9" in error["message"]
    assert "ask again" in error["message"]
    # A request that comes while the runner is being started again simply waits.
    assert fragile.chat()["choices"][0]["message"]["content"]
    fragile.wait_serving(instance_id)
    # The same for a whole answer: a real status, and a reason to try again.
    answers = together(2, lambda number: _killed(fragile) if number else _whole(fragile))
    status, headers, error = answers[0] or (0, {}, {})
    assert (status, headers.get("retry-after")) == (500, "1")
    assert "signal=9" in error["message"]


def _whole(served: Served) -> tuple[int, dict[str, str], dict[str, str]]:
    answer = served.post("/v1/chat/completions", served.body(max_tokens=ENDLESS))
    return answer.status_code, dict(answer.headers), answer.json()["error"]


def _killed(served: Served) -> None:
    wait_until(lambda: served.records()[0]["inProgressTasks"], "the request", DEADLINE_S)
    served.kill_runner()


def test_a_cancelled_command_ends_its_stream_and_frees_its_place(served: Served) -> None:
    lines, command_id = open_stream(served)
    answer = served.post(f"/v1/cancel/{command_id}")
    assert answer.status_code == 200
    assert answer.json() == {"message": "Command cancelled.", "command_id": command_id}
    rest = list(lines)
    assert "data: [DONE]" not in rest
    assert not any('"error"' in line for line in rest)
    served.wait_idle()
    again = served.post(f"/v1/cancel/{command_id}")
    assert again.status_code == 404
    assert again.json()["error"]["message"] == "Command not found or already completed"
    assert served.records()[0]["cancelledTaskIds"]


def test_an_operator_cancels_a_task_of_a_runner(served: Served) -> None:
    lines, command_id = open_stream(served)
    [record] = served.records()
    [task] = record["inProgressTasks"]
    assert task["commandId"] == command_id
    node, runner = record["nodeId"], record["runnerId"]
    body = {"taskId": task["taskId"]}
    unknown = served.post("/v1/diagnostics/node/runners/nobody/cancel", body)
    assert unknown.status_code == 404
    other = {"taskId": "nothing"}
    assert served.post(f"/v1/diagnostics/node/runners/{runner}/cancel", other).status_code == 404
    elsewhere = f"/v1/diagnostics/cluster/nobody/runners/{runner}/cancel"
    assert served.post(elsewhere, body).status_code == 404
    asked = served.post(f"/v1/diagnostics/node/runners/{runner}/cancel", body)
    assert asked.json()["status"] == "cancel_requested"
    assert asked.json()["nodeId"] == node
    assert "data: [DONE]" not in list(lines)
    served.wait_idle()
    again = served.post(f"/v1/diagnostics/cluster/{node}/runners/{runner}/cancel", body)
    assert again.json()["status"] == "already_cancelled"


def test_a_client_that_hangs_up_in_prefill_frees_its_place(served: Served) -> None:
    body = json.dumps(served.body("x" * 3500, max_tokens=500, stream=True)).encode()
    with raw_request(served, body):
        wait_until(lambda: served.records()[0]["inProgressTasks"], "the request", DEADLINE_S)
    served.wait_idle()
    assert served.daemon.get("/state")["tasks"] == {}


def test_a_client_that_hangs_up_in_mid_stream_frees_its_place(served: Served) -> None:
    lines, command_id = open_stream(served)
    lines.close()
    served.wait_idle()
    assert served.post(f"/v1/cancel/{command_id}").status_code == 404


def test_sixty_four_clients_at_once_are_answered_or_told_to_come_back(served: Served) -> None:
    def ask(number: int) -> tuple[int, bool]:
        answer = served.post(
            "/v1/chat/completions", served.body(f"number {number}", max_tokens=4, stream=True)
        )
        if answer.status_code == 200:
            return 200, answer.text.endswith("data: [DONE]\n\n") and '"error"' not in answer.text
        return answer.status_code, int(answer.headers["Retry-After"]) > 0

    answers = together(64, ask)
    assert {status for status, _ in answers} <= {200, 429}
    assert all(good for _, good in answers)
    # Eight places and a queue of 32.
    assert sum(status == 200 for status, _ in answers) >= 40
    served.wait_idle()


def test_a_reader_of_one_byte_a_second_slows_nobody(served: Served) -> None:
    body = json.dumps(served.body("slow", max_tokens=3000, stream=True)).encode()
    with raw_request(served, body) as slow:
        slow.recv(1)
        others = together(4, lambda number: served.stream(f"fast {number}", max_tokens=32))
        assert all(answer.done for answer in others)
        slow.recv(1)
        # The slow one still is where it was; the others did not have to wait for it.
        assert served.daemon.get("/state")["tasks"]
    served.wait_idle()


def test_a_deleted_instance_ends_its_streams_with_a_reason(fragile: Served) -> None:
    instance_id = fragile.place()
    pid = fragile.runner_pid()
    lines, _ = open_stream(fragile)
    deleted = fragile.delete(f"/instance/{instance_id}")
    assert deleted.json()["instance_id"] == instance_id
    rest = [line for line in lines if line.startswith("data: ")]
    assert "instance was deleted" in rest[-2]
    assert rest[-1] == "data: [DONE]"
    wait_until(lambda: not psutil.pid_exists(pid), "the runner to end", DEADLINE_S)
    assert fragile.refusal()["code"] == 404


def test_a_stop_ends_streams_and_runners_in_time(fragile: Served) -> None:
    fragile.place()
    pid = fragile.runner_pid()
    lines, _ = open_stream(fragile)
    fragile.daemon.signal(signal.SIGTERM)
    rest = [line for line in lines if line.startswith("data: ")]
    assert "shutting down" in rest[-2]
    assert rest[-1] == "data: [DONE]"
    assert fragile.daemon.wait_exit() == 0
    assert not psutil.pid_exists(pid), "a child was left behind"
    assert "unexpected" not in fragile.daemon.said()


def test_a_restart_ends_the_runners_first(fragile: Served) -> None:
    fragile.place()
    pid = fragile.runner_pid()
    assert fragile.post("/admin/restart").json()["status"] == "restarting"
    fragile.daemon.wait_ready(count=2)
    assert not psutil.pid_exists(pid)
    assert psutil.Process(fragile.daemon.pid).children() == []


def test_a_model_with_cut_off_weights_is_refused_by_name(fragile: Served) -> None:
    weights = fragile.daemon.home / "models" / "skulk--tiny-llama" / "model.safetensors"
    os.truncate(weights, 1000)
    refused = fragile.post("/place_instance", {"model_id": fragile.model})
    assert refused.status_code == 400
    assert Path(weights).name in refused.json()["error"]["message"]


@contextmanager
def raw_request(served: Served, body: bytes) -> Iterator[socket.socket]:
    """A connection with a small window that has sent a chat request and reads nothing by itself."""
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{served.daemon.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.settimeout(DEADLINE_S)
        connection.connect(("127.0.0.1", served.daemon.port))
        connection.sendall(head.encode() + body)
        yield connection

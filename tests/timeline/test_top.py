"""`skulkctl top`: speeds from progress entries, the page, and a daemon that answers."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, cast

import pytest

from skulkctl.cli.command import Command
from skulkctl.cli.invocation import Invocation
from skulkctl.cli.options import params_of
from skulkctl.main import main
from skulkctl.nodes.rows import lost_items, node_items
from skulkctl.ui.lines import plain_text
from skulkctl.ui.options import Screen, pace_s
from skulkctl.ui.rates import tokens_per_second
from skulkctl.ui.snapshot import Snapshot, View
from skulkctl.ui.top_page import top_items, top_page
from skulkd.wire.base import Memory
from skulkd.wire.cluster import LostNode
from skulkd.wire.machine import MemoryUsage
from tests.cli.builders import a_cluster, a_request, as_json
from tests.daemon_process import DaemonProcess
from tests.skulkctl_process import skulkctl
from tests.timeline.builders import NODES, NOW, rank, read, step, timeline

if TYPE_CHECKING:
    from skulkctl.daemon.state import ClusterState
    from skulkctl.ui.top_page import TopRunnerItem


def one_node(name: str, **parts: Any) -> ClusterState:
    health = {"n": {"level": "ok", "reasons": []}}
    return a_cluster(nodeIdentities={"n": {"friendlyName": name}}, nodeHealth=health, **parts)


def decoding(*points: tuple[float, int]) -> dict[str, Any]:
    steps = [
        step(ago_s, "decode_stream", "decode_token_progress", completion_tokens=tokens)
        for ago_s, tokens in points
    ]
    return timeline(rank(0, steps))


def test_a_lost_node_is_a_problem_beside_the_verdict_about_runners() -> None:
    snapshot = Snapshot(read(decoding((3, 25), (1, 75))), names=NODES)
    since = {"name": "kite4", "since": "2026-03-04T12:00:00.125Z", "sinceSeconds": 305.0}
    items = top_items(snapshot, lost_items([LostNode.model_validate(since)]), a_cluster())
    lines = plain_text(top_page(snapshot, View(), items, 80)).splitlines()
    assert lines[2] == " NODE LOST  kite4 lost for 5m5s, since 2026-03-04T12:00:00Z"


@pytest.mark.parametrize(
    ("points", "speed"),
    [(((5, 25), (3, 50), (1, 75)), 12.5), (((1, 75),), None), (((25, 25), (20, 50)), None)],
)
def test_speed_is_that_of_the_last_seconds(points: Any, speed: float | None) -> None:
    snapshot = Snapshot(read(decoding(*points)), names=NODES)
    only = snapshot.groups[0].ranks[0]
    assert tokens_per_second(only, {}, NOW.timestamp()) == speed


def test_the_page_has_nodes_runners_and_the_verdict() -> None:
    snapshot = Snapshot(read(decoding((3, 25), (1, 75))), names=NODES, context="lab")
    readings = {"gpuUsage": 50.0, "accelerator": {"utilizationRatio": 0.25}}
    memory = MemoryUsage(
        ram_total=Memory.of(64 << 30),
        ram_available=Memory.of(16 << 30),
        swap_total=Memory(),
        swap_available=Memory(),
    )
    state = one_node("kite1", nodeSystem={"n": readings}, nodeMemory={"n": as_json(memory)})
    items = top_items(snapshot, node_items(state), state)
    told = plain_text(top_page(snapshot, View(), items, 120))
    assert "25.0 tokens/s" in told.splitlines()[0]
    assert "█████████░░░ 48.0GiB/64.0GiB" in told
    assert "███░░░░░░░░░ 25%" in told
    assert "gemma-4-26b" in told and "decode_stream" in told
    assert "NODE LOST" not in told
    narrow = plain_text(top_page(snapshot, View(ascii=True), items, 80))
    assert narrow.isascii()
    assert all(len(line) <= 80 for line in narrow.splitlines())


LONG = "mlx-community/Qwen3-Next-80B-A3B-Instruct-8bit"


@pytest.mark.parametrize("columns", [64, 80, 120])
def test_a_narrow_screen_keeps_the_speed_and_drops_what_is_empty(columns: int) -> None:
    snapshot = Snapshot(read(decoding((3, 25), (1, 75))), names=NODES)
    state = one_node("mac-mini-office", nodeSystem={"n": {"pcpuUsage": 3.0}})
    items = top_items(snapshot, node_items(state), state)
    changed = {"modelId": LONG, "node": "mac-mini-office", "secondsInPhase": 5525.0}
    items["runners"][0] |= cast("TopRunnerItem", changed)
    lines = plain_text(top_page(snapshot, View(), items, columns)).splitlines()
    assert all(len(line) <= columns for line in lines)
    [node_header] = [line.split() for line in lines if line.startswith(" node")]
    assert node_header == ["node", "health", "cpu"]
    header, runner = lines[-2:]
    assert (header.split()[0], header.split()[-1], runner.split()[-1]) == ("model", "tok/s", "25.0")
    assert LONG.partition("/")[2] in runner


@pytest.mark.parametrize(
    ("points", "tasks", "speed"),
    [
        (((3, 25), (1, 75)), {}, "25.0 tokens/s"),
        (((1, 1),), {}, "- tokens/s"),
        ((), {}, "0.0 tokens/s"),
        ((), {"t": a_request("t", "c", "i", "m", "Running")}, "- tokens/s"),
    ],
)
def test_a_speed_that_nobody_measured_is_not_called_zero(
    points: Any, tasks: dict[str, object], speed: str
) -> None:
    status = "RunnerRunning" if points else "RunnerReady"
    found = decoding(*points)
    for runner in found["runners"]:
        runner["statusKind"] = status
    snapshot = Snapshot(read(found), names=NODES)
    page = plain_text(
        top_page(snapshot, View(), top_items(snapshot, [], a_cluster(tasks=tasks)), 80)
    )
    assert speed in page.splitlines()[0]


def test_a_real_daemon_is_shown(shared_daemon: DaemonProcess) -> None:
    done = skulkctl(
        *("top", "-o", "json"), home=shared_daemon.home / "cli", endpoint=shared_daemon.url
    )
    assert done.code == 0, done.err
    assert [one["name"] for one in json.loads(done.out)["nodes"]] == ["kite1"]


@pytest.mark.parametrize("command", ["timeline", "top"])
def test_both_screens_have_the_same_options(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are declared once; whoever knows one screen knows the other."""
    assert main([command, "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    for option in params_of(Screen):
        assert f"{option.opts[0]} {option.help}" in told


def test_a_screen_is_asked_for_less_often_over_a_slow_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TEXTUAL_FPS", raising=False)
    call = Invocation(Command("top"))
    assert (pace_s(call), "TEXTUAL_FPS" in os.environ) == (2.0, False)
    call.params = {"slow": True}
    monkeypatch.setenv("TEXTUAL_FPS", "60")
    assert (pace_s(call), os.environ["TEXTUAL_FPS"]) == (10.0, "60")

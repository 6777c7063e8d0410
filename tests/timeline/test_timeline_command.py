"""`skulkctl timeline` without a terminal: text, JSON, exit codes, recordings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skulkctl.main import main
from skulkctl.timeline.recordings import read_frames
from tests.timeline.builders import rank, step, timeline
from tests.timeline.situations import Situation, d1, situations


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line on a saved answer; exit code, stdout and stderr."""
    monkeypatch.setenv("SKULK_HOME", str(tmp_path))
    monkeypatch.delenv("COLUMNS", raising=False)

    def command(document: dict[str, Any], *arguments: str) -> tuple[int, str, str]:
        saved = tmp_path / "saved.json"
        saved.write_text(json.dumps(document))
        code = main(["timeline", "--from", str(saved), *arguments])
        told = capsys.readouterr()
        return code, told.out, told.err

    return command


@pytest.mark.parametrize("situation", situations(), ids=lambda one: f"{one.rule}-{one.state}")
def test_check_exits_7_for_problems_only(run: Any, situation: Situation) -> None:
    code, out, err = run(situation.timeline, "--check")
    calm = situation.state in ("OK", "WAITING", "RECOVERED")
    assert code == (0 if calm else 7)
    assert out.startswith(f"{situation.state}  {situation.rule}")
    assert ("hint: " in err) is not calm


def test_json_carries_verdict_and_data(run: Any) -> None:
    code, out, _ = run(d1(), "--check", "-o", "json")
    document = json.loads(out)
    assert code == 7
    assert document["kind"] == "Timeline"
    worst = document["verdict"]["findings"][0]
    assert (worst["rule"], worst["culprit"]["rank"], worst["taskId"]) == ("D1", 1, "4be0aa11")
    assert len(document["timeline"]["runners"]) == 4


def test_once_is_the_same_screen_as_text(run: Any) -> None:
    code, out, _ = run(d1(), "--once")
    assert code == 0
    assert "╭─ ✖ HANG  no rank has moved for 41s" in out
    assert " agree " in out and "all wait for 1" in out
    _, plain, _ = run(d1(), "--once", "--ascii")
    assert plain.isascii()
    assert "+- X HANG" in plain


def test_without_a_terminal_it_is_once(run: Any) -> None:
    assert run(d1())[1] == run(d1(), "--once")[1]


def test_hang_after_moves_the_limit(run: Any) -> None:
    code, out, _ = run(d1(), "--check", "--hang-after", "50s")
    assert (code, out.split()[0]) == (0, "WAITING")
    code, _, err = run(d1(), "--check", "--hang-after", "soon")
    assert (code, "--hang-after: 'soon' is not a duration" in err) == (2, True)


def test_recordings_are_read_back_and_a_cut_line_is_forgiven(run: Any, tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    run(d1(), "--once", "--record", str(tape))
    idle = [step(1, "idle", "runner_ready")]
    calm = timeline(rank(0, idle, status="RunnerReady", task=None, instance="aa11bb22"))
    run(calm, "--once", "--record", str(tape))
    with tape.open("a") as file:
        file.write('{"kind": "skulkctl/timeline-rec')
    frames = read_frames(tape)
    assert [len(frame.timeline.runners) for frame in frames] == [4, 1]
    assert main(["timeline", "--from", str(tape), "--check"]) == 0


def test_a_file_without_a_timeline_is_refused(run: Any, tmp_path: Path) -> None:
    code, _, err = run({"hello": 1}, "--check")
    assert (code, "contains no timeline" in err) == (1, True)
    assert main(["timeline", "--from", str(tmp_path / "nothing"), "--check"]) == 3

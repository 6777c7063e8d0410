"""What skulkctl says on a terminal: prose wraps at spaces, commands can be copied."""

from __future__ import annotations

import pytest

from skulkctl.output.messages import Messages

PROSE = "on kite1, kite2: install OpenBLAS or correct runtime.blas, then restart skulkd"
COMMANDS = [
    "skulkctl place mlx-community/Qwen3-0.6B-4bit --plan plan-be78bd54650a --wait",
    "after fixing it, run:  skulkctl restart --instance ddf70f4a --wait",
]


@pytest.fixture(autouse=True)
def forty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skulkctl.output.messages.terminal_width", lambda _: 40)


def test_a_hint_without_a_command_wraps_at_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    Messages().hint(PROSE)
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(line.strip() for line in lines) == f"hint: {PROSE}"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_stays_one_line(capsys: pytest.CaptureFixture[str], command: str) -> None:
    Messages().hint(command)
    assert capsys.readouterr().err == f"hint: {command}\n"

"""`skulkctl man`: every command has its page, with `man` and without."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from skulkctl.cli.root import COMMANDS
from skulkctl.manual.plain_text import plain_text
from tests.cli.conftest import ROOT, Cli


@pytest.fixture
def no_man(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_page(cli: Cli, no_man: None, command: str) -> None:
    done = cli("man", command)
    assert (done.code, done.err) == (0, "")
    assert f"skulkctl-{command} - " in done.out


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ((), "skulkctl - "),
        (("skulkd",), "skulkd - "),
        (("config", "set"), "skulkctl-config-set - "),
    ],
)
def test_programs_and_verbs_have_pages(
    cli: Cli, no_man: None, words: tuple[str, ...], title: str
) -> None:
    assert title in cli("man", *words).out


def test_an_unknown_command_has_none(cli: Cli) -> None:
    done = cli("man", "fly")
    assert done.code == 3
    assert "no man page for fly" in done.err


@pytest.mark.skipif(shutil.which("man") is None, reason="needs man")
def test_man_shows_the_page(process: Cli) -> None:
    done = process("man", "config", "set")
    assert done.code == 0, done.err
    assert "SKULKCTL-CONFIG-SET(1)" in done.out


def test_plain_text_loses_no_words_and_no_examples() -> None:
    for page in sorted((ROOT / "man").glob("*.1")):
        source = page.read_text(encoding="utf-8")
        text = plain_text(source, 80)
        assert "\\" not in text.replace("\\n", "").replace("|\\", ""), page.name
        assert not re.search(r"^\s*\.[A-Z]", text, re.MULTILINE), page.name
        for line in re.findall(r"^\.B (.*)$", source, re.MULTILINE):
            assert line.replace("\\-", "-").split()[0] in text, page.name

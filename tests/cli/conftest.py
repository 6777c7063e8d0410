"""Fixtures of the CLI tests: a clean home, a way to run skulkctl, a stock node to ask."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skulkctl.contexts import Context, ContextFile, write_contexts
from skulkctl.main import main
from tests.cli.stock import StockNode, stock_node
from tests.skulkctl_process import Result, skulkctl

ROOT = Path(__file__).parents[2]


Cli = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own; nothing of this machine's settings is seen."""
    for name in list(os.environ):
        if name.startswith(("SKULK_", "XDG_")) or name in ("NO_COLOR", "HF_TOKEN"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("SKULK_HOME", str(home))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    return home


@pytest.fixture
def cli(home: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run skulkctl in this process."""

    def run(*arguments: str) -> Result:
        code = main(arguments)
        said = capsys.readouterr()
        return Result(int(code), said.out, said.err)

    return run


@pytest.fixture
def process(home: Path) -> Cli:
    """Run skulkctl as a process of its own, its output in pipes."""
    return skulkctl


@pytest.fixture
def stock(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StockNode]:
    """A stock node that skulkctl asks by default."""
    node = stock_node()
    node.start()
    monkeypatch.setenv("SKULK_ENDPOINT", node.url)
    try:
        yield node
    finally:
        node.stop()


def save_context(home: Path, *endpoints: str, protected: bool = False) -> None:
    """Make `lab` the context that is used."""
    context = Context("lab", endpoints, protected=protected)
    write_contexts(home / "skulkctl.toml", ContextFile("lab", {"lab": context}))

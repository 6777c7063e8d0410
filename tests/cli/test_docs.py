"""The manual cannot rot: generated files are current, and every command explains itself."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skulkctl.cli.command import new_context
from skulkctl.cli.options import Display, Format, Table, params_of
from skulkctl.cli.resources import RESOURCES
from skulkctl.cli.root import COMMANDS, build
from skulkctl.cli.topics import FORMATS as EXPLAINED
from skulkctl.cli.topics import TOPICS
from skulkctl.errors import CliError
from skulkctl.exits import MEANINGS, ExitCode
from tests.cli.conftest import ROOT, Cli


def leaves(command: Any, path: str = "skulkctl", parent: Any = None) -> Iterator[tuple[str, Any]]:
    """Every command that can be run, with its path."""
    context = new_context(command, path.rpartition(" ")[2], parent)
    if not hasattr(command, "list_commands"):
        yield path, command
        return
    for name in command.list_commands(context):
        yield from leaves(command.get_command(context, name), f"{path} {name}", context)


LEAVES = dict(leaves(build()))


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("gen_docs", ROOT / "scripts" / "gen_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_generated_file_is_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "gen_docs.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_changed_a_missing_and_a_superfluous_file_are_stale(tmp_path: Path) -> None:
    module = generator()
    module.ROOT = tmp_path
    module.main([])
    assert module.main(["--check"]) == 0
    (tmp_path / "man" / "skulkctl.1").write_text("old")
    (tmp_path / "completions" / "skulkctl.fish").unlink()
    (tmp_path / "man" / "skulkctl-gone.1").write_text("gone")
    names = [path.name for path in module.stale_files(module.generate())]
    assert names == ["skulkctl.fish", "skulkctl-gone.1", "skulkctl.1"]
    assert module.main(["--check"]) == 1
    module.main([])
    assert module.main(["--check"]) == 0
    assert not (tmp_path / "man" / "skulkctl-gone.1").exists()


@pytest.mark.skipif(not shutil.which("groff"), reason="needs groff")
def test_man_pages_have_no_groff_warnings() -> None:
    pages = sorted((ROOT / "man").glob("*.1"))
    assert len(pages) > len(COMMANDS)
    for page in pages:
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", page], capture_output=True, text=True, check=True
        )
        assert done.stderr == "", page.name


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_has_examples_that_name_it(path: str) -> None:
    examples = LEAVES[path].epilog
    assert examples.startswith("Examples:\n  ")
    lines = examples.splitlines()[1:]
    assert any(path in line or path.replace("list", "ls") in line for line in lines)


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_takes_the_common_options(path: str) -> None:
    names = {param.name for param in LEAVES[path].params}
    assert {param.name for param in params_of(Display)} <= names
    if path.removeprefix("skulkctl ") in RESOURCES:
        assert {*(param.name for param in params_of(Table)), "format"} <= names


@pytest.mark.parametrize("path", LEAVES)
def test_help_of_every_command_fits_and_keeps_its_examples(cli: Cli, path: str) -> None:
    result = cli(*path.split()[1:], "--help")
    assert result.code == 0
    assert result.out.startswith(f"Usage: {path} ")
    assert LEAVES[path].epilog.strip() in result.out
    assert cli("help", *path.split()[1:]).out == result.out


def test_examples_are_valid_command_lines(cli: Cli) -> None:
    """Every option in an example exists on that command."""
    for path, command in LEAVES.items():
        known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
        for line in command.epilog.splitlines()[1:]:
            piece = re.split(r"[|&>]|   |--sort \S+", line.strip())[0]
            used = re.findall(r"(?<=\s)--?[a-z][a-z-]*", piece)
            assert set(used) <= known, (path, line)


def test_the_root_summary_matches_what_each_module_holds(cli: Cli) -> None:
    root = build()
    context = new_context(root, "skulkctl")
    for name, entry in COMMANDS.items():
        assert root.get_command(context, name) is not None, name
        assert entry.summary.endswith(".")
        assert len(entry.summary) <= 60


def test_topics_are_printed_and_complete(cli: Cli) -> None:
    for topic in TOPICS:
        assert cli("help", topic).code == 0
    assert list(EXPLAINED) == list(Format)
    assert set(MEANINGS) == set(ExitCode)
    shown = cli("help", "exit-codes").out
    assert all(f"  {int(code):<3}  " in shown for code in ExitCode)


def test_every_error_has_an_exit_code_of_the_table() -> None:
    def tree(kind: type[CliError]) -> Iterator[type[CliError]]:
        yield kind
        for child in kind.__subclasses__():
            yield from tree(child)

    codes = {kind.exit_code for kind in tree(CliError)}
    assert codes == {ExitCode(number) for number in range(1, 10)}

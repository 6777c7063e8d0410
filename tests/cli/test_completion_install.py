"""`skulkctl completion install`: one file in the right place, and nothing left afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from skulkctl.cli.completion import SCRIPTS
from tests.cli.conftest import Cli

PLACES = {
    "bash": ".local/share/bash-completion/completions/skulkctl",
    "zsh": ".zfunc/_skulkctl",
    "fish": ".config/fish/completions/skulkctl.fish",
}


@pytest.fixture(autouse=True)
def _no_variables_of_this_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BASH_COMPLETION_USER_DIR", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)


def files(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_file()]


@pytest.mark.parametrize("shell", PLACES)
def test_the_file_comes_and_goes(
    cli: Cli, home: Path, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    file = home / PLACES[shell]
    done = cli("completion", "install")
    assert (done.code, done.out) == (0, f"wrote {file}\n")
    assert f"skulkctl completion install {shell} --uninstall" in done.err
    assert file.read_text(encoding="utf-8") == SCRIPTS[shell]
    assert cli("completion", "install", shell).out == f"unchanged: {file}\n"
    assert files(home) == [file]
    assert cli("completion", "install", shell, "--uninstall").out == f"removed {file}\n"
    assert files(home) == []
    assert cli("completion", "install", shell, "--uninstall").out.startswith("not installed")


def test_an_older_script_of_ours_is_replaced(cli: Cli, home: Path) -> None:
    cli("completion", "install", "bash")
    file = home / PLACES["bash"]
    file.write_text("# bash completion for skulkctl, of last year\n", encoding="utf-8")
    assert cli("completion", "install", "bash").out == f"wrote {file}\n"
    assert file.read_text(encoding="utf-8") == SCRIPTS["bash"]


@pytest.mark.parametrize("option", [(), ("--uninstall",)])
def test_a_file_of_somebody_else_is_left_alone(
    cli: Cli, home: Path, option: tuple[str, ...]
) -> None:
    file = home / PLACES["fish"]
    file.parent.mkdir(parents=True)
    file.write_text("# mine\n", encoding="utf-8")
    done = cli("completion", "install", "fish", *option)
    assert done.code == 4
    assert str(file) in done.err
    assert file.read_text(encoding="utf-8") == "# mine\n"


@pytest.mark.parametrize(
    ("variable", "shell", "below"),
    [
        ("XDG_DATA_HOME", "bash", "bash-completion/completions/skulkctl"),
        ("BASH_COMPLETION_USER_DIR", "bash", "completions/skulkctl"),
        ("XDG_CONFIG_HOME", "fish", "fish/completions/skulkctl.fish"),
        ("ZDOTDIR", "zsh", ".zfunc/_skulkctl"),
    ],
)
def test_the_variables_of_the_shells_are_respected(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, shell: str, below: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "else"))
    assert cli("completion", "install", shell).code == 0
    assert (tmp_path / "else" / below).is_file()


def test_a_real_bash_completes_with_the_installed_file(cli: Cli, home: Path) -> None:
    cli("completion", "install", "bash")
    script = f"""
source {home / PLACES["bash"]}
COMP_WORDS=({Path(sys.executable).parent / "skulkctl"} comple) COMP_CWORD=1
_skulkctl && echo "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "completion\n"


def test_other_uses_are_refused(cli: Cli) -> None:
    assert cli("completion", "bash", "--uninstall").code == 2
    assert cli("completion", "bash", "zsh").code == 2

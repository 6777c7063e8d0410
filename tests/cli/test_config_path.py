"""`config path`: where the files of this machine are."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli


def test_the_files_of_this_machine_are_found_without_a_daemon(cli: Cli, home: Path) -> None:
    (home / "cluster.secret").write_text("a secret that is not shown\n", encoding="utf-8")
    shown = cli("config", "path")
    assert shown.code == 0
    assert f"secret    {home}/cluster.secret  yes" in shown.out
    assert f"config    {home}/skulk.yaml" in shown.out
    assert "not shown" not in shown.out


def test_one_file_is_a_bare_path_for_scripts(cli: Cli, home: Path) -> None:
    assert cli("config", "path", "secret") == (0, f"{home}/cluster.secret\n", "")
    assert cli("config", "path", "nonsense").code == 2

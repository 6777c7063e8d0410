"""The cluster secret: who decides it, how it is created, and what is wrong with it."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from skulkd.settings.load import Settings, load_settings
from skulkd.settings.paths import Paths, find_paths
from skulkd.settings.problems import SettingsError
from skulkd.settings.secret import cluster_secret, read_cluster_secret
from tests.settings.mounts import tmpfs

OWN = "correct-horse-battery"


def _at(home: Path, **environ: str) -> tuple[Paths, Settings]:
    paths = find_paths({"SKULK_HOME": str(home)})
    return paths, load_settings(paths, environ, cwd=home.parent)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_first_use_creates_a_private_secret_that_stays(tmp_path: Path) -> None:
    paths, loaded = _at(tmp_path / "home")
    assert read_cluster_secret(paths, loaded) is None
    assert not paths.secret_file.exists()
    first = cluster_secret(paths, loaded)
    assert len(first.value) >= 43
    assert (_mode(paths.secret_file), _mode(paths.config)) == (0o600, 0o700)
    assert (first.origin.text, first.warnings) == (str(paths.secret_file), ())
    assert first.created
    later = cluster_secret(paths, loaded)
    assert (later.value, later.created) == (first.value, False)
    assert later == read_cluster_secret(paths, loaded)
    assert cluster_secret(*_at(tmp_path / "other")).value != first.value
    assert first.value not in repr(first)


def test_variable_and_file_override_the_created_one(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "skulk.yaml").write_text(f"cluster: {{secret: {OWN}}}\n")
    paths, loaded = _at(home)
    assert cluster_secret(paths, loaded).value == OWN
    by_variable = cluster_secret(*_at(home, SKULK_CLUSTER_SECRET="x" * 16))
    assert (by_variable.value, by_variable.origin.text) == ("x" * 16, "SKULK_CLUSTER_SECRET")
    assert not paths.secret_file.exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_file_others_may_use_is_a_warning(tmp_path: Path, mode: int) -> None:
    paths, loaded = _at(tmp_path)
    paths.secret_file.write_text(f"  {OWN}\n\n")
    paths.secret_file.chmod(mode)
    found = cluster_secret(paths, loaded)
    assert found.value == OWN
    (warning,) = found.warnings
    assert f"mode {mode:04o}" in warning
    assert OWN not in warning


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        (b"short", "must have at least 16 characters"),
        (b"two words here, or more", "visible ASCII"),
        ("sechzehn-zeichen-ü".encode(), "visible ASCII"),
        (b"\xff" * 20, "visible ASCII"),
        (b"x" * 5000, "at most 1024"),
    ],
    ids=range(7),
)
def test_unusable_file_says_what_to_do(tmp_path: Path, content: bytes, message: str) -> None:
    paths, loaded = _at(tmp_path)
    paths.secret_file.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        cluster_secret(paths, loaded)
    text = str(caught.value)
    assert text.startswith(f"{paths.secret_file}: the cluster secret ")
    assert message in text
    assert "delete the file to get a new secret, or set SKULK_CLUSTER_SECRET" in text
    assert paths.secret_file.read_bytes() == content


def test_directory_in_its_place_says_what_helps(tmp_path: Path) -> None:
    paths, loaded = _at(tmp_path)
    paths.secret_file.mkdir()
    with pytest.raises(SettingsError, match="cannot be read: Is a directory; or set SKULK_CLUSTER"):
        cluster_secret(paths, loaded)


def test_home_below_a_file_says_what_helps(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    paths, loaded = _at(tmp_path / "file" / "home")
    with pytest.raises(SettingsError) as caught:
        cluster_secret(paths, loaded)
    text = str(caught.value)
    assert text.startswith(f"{paths.secret_file}: the cluster secret cannot be created here")
    assert "SKULK_CLUSTER_SECRET" in text


def test_read_only_home_says_what_helps_and_a_variable_does(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "fixed", "ro") as home:
        paths, loaded = _at(home)
        with pytest.raises(SettingsError, match="created here: Read-only file system; set SKULK_C"):
            cluster_secret(paths, loaded)
        assert cluster_secret(*_at(home, SKULK_CLUSTER_SECRET=OWN)).value == OWN


_STARTER = """
import sys
from pathlib import Path
from skulkd.settings.load import load_settings
from skulkd.settings.paths import find_paths
from skulkd.settings.secret import cluster_secret
paths = find_paths({"SKULK_HOME": sys.argv[1]})
settings = load_settings(paths, {}, cwd=Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
print(cluster_secret(paths, settings).value, flush=True)
"""


def test_daemons_that_start_at_once_agree(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _STARTER, str(tmp_path / "home")]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = {process.communicate(timeout=600)[0] for process in processes}
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert answers == {(tmp_path / "home" / "cluster.secret").read_text()}

"""Where files live, for every kind of environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

from skulkd.settings.paths import Paths, expand_home, find_paths
from skulkd.settings.problems import SettingsError

HOME = {"HOME": "/home/kite"}
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="XDG is a Linux convention")


@pytest.mark.parametrize(
    ("value", "root"),
    [
        ("lab", "/home/kite/lab"),
        ("~/lab", "/home/kite/lab"),
        ("~", "/home/kite"),
        ("/srv/skulk", "/srv/skulk"),
    ],
)
def test_skulk_home_set_moves_everything(value: str, root: str) -> None:
    paths = find_paths({**HOME, "SKULK_HOME": value, "XDG_CONFIG_HOME": "/ignored"})
    assert paths == Paths(
        config=Path(root),
        data=Path(root),
        cache=Path(root),
        models=Path(root, "models"),
        staging=Path(root, "staging"),
        moved=True,
    )
    for path in _every_path(paths):
        assert path.is_relative_to(root)


def test_skulk_home_set_gives_every_purpose_its_own_path() -> None:
    every = _every_path(find_paths({**HOME, "SKULK_HOME": "lab"}))
    assert len(set(every)) == len(every)


@linux_only
def test_xdg_variables_choose_the_homes() -> None:
    paths = find_paths(
        {**HOME, "XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "/d", "XDG_CACHE_HOME": "/e"}
    )
    assert paths.config_file == Path("/c/skulk/skulk.yaml")
    assert paths.secret_file == Path("/c/skulk/cluster.secret")
    assert paths.contexts_file == Path("/c/skulk/skulkctl.toml")
    assert paths.models == Path("/d/skulk/models")
    assert paths.custom_cards == Path("/d/skulk/custom_model_cards")
    assert paths.event_log == Path("/d/skulk/event_log")
    assert paths.log_file == Path("/e/skulk/logs/skulk.log")
    assert paths.traces == Path("/e/skulk/traces")
    assert paths.completion_cache == Path("/e/skulk/completion.json")
    assert paths.staging == Path("/home/kite/.skulk/staging")


@linux_only
def test_nothing_set_uses_the_platform_rules() -> None:
    paths = find_paths({**HOME, "SKULK_HOME": ""})
    assert paths.config == platformdirs.user_config_path("skulk")
    assert paths.data == platformdirs.user_data_path("skulk")
    assert paths.cache == platformdirs.user_cache_path("skulk")


@linux_only
def test_relative_xdg_variable_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="XDG_DATA_HOME: must be an absolute path"):
        find_paths({**HOME, "XDG_DATA_HOME": "data"})


@pytest.mark.parametrize(
    ("value", "models"), [("m", "/home/kite/m"), ("~/m", "/home/kite/m"), ("/mnt/m", "/mnt/m")]
)
def test_models_dir_variable_moves_only_models(value: str, models: str) -> None:
    paths = find_paths({**HOME, "SKULK_HOME": "/srv", "SKULK_MODELS_DIR": value})
    assert paths.models == Path(models)
    assert paths.data == Path("/srv")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("~/a", "/home/kite/a"), ("~", "/home/kite"), ("/a/~", "/a/~"), ("a", "a"), ("~a", "~a")],
)
def test_tilde_in_a_value_is_the_home_directory(text: str, expected: str) -> None:
    assert expand_home(text, HOME) == Path(expected)


def test_cli_start_up_modules_load_nothing_heavy() -> None:
    code = (
        "import sys, skulkd.settings.paths, skulkd.settings.files, skulkd.settings.problems;"
        "print(sorted({'yaml', 'pydantic', 'platformdirs', 'difflib'} & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    assert answer.stdout.strip() == "[]"


def _every_path(paths: Paths) -> list[Path]:
    return [
        paths.config_file,
        paths.secret_file,
        paths.contexts_file,
        paths.models,
        paths.staging,
        paths.custom_cards,
        paths.event_log,
        paths.log_file,
        paths.traces,
        paths.completion_cache,
    ]

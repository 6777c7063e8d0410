"""Which BLAS a runner gets, and the environment it starts in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skulkd.worker.blas import WELL_KNOWN, BlasChoice, choose_blas
from skulkd.worker.environment import runner_environ

FOUND = WELL_KNOWN[1]
NONE = BlasChoice(None, "none")


def choose(setting: str = "auto", **facts: Any) -> BlasChoice:
    known: dict[str, Any] = {
        "system": "linux",
        "accelerated": False,
        "is_file": lambda path: path in (FOUND, Path("/opt/my.so")),
    }
    return choose_blas(setting, **{**known, **facts})


@pytest.mark.parametrize(
    ("choice", "library"),
    [
        pytest.param(choose(), str(FOUND), id="a well-known place"),
        pytest.param(choose("/opt/my.so"), "/opt/my.so", id="named"),
        pytest.param(choose("/opt/my.so", accelerated=True), "/opt/my.so", id="named beats gpu"),
        pytest.param(choose("off"), None, id="off"),
        pytest.param(choose(system="darwin"), None, id="macOS"),
        pytest.param(choose(accelerated=True), None, id="gpu"),
    ],
)
def test_the_setting_and_the_system_decide(choice: BlasChoice, library: str | None) -> None:
    assert choice.library == library
    assert choice.why
    assert not choice.missing


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        pytest.param(choose(is_file=lambda _: False), "no OpenBLAS", id="not installed"),
        pytest.param(choose("/opt/none.so"), "/opt/none.so", id="named and not there"),
        pytest.param(
            choose("/opt/a b.so", is_file=lambda _: True), "spaces", id="cannot be quoted"
        ),
    ],
)
def test_without_a_fast_library_the_operator_is_told_what_to_do(
    choice: BlasChoice, why: str
) -> None:
    assert (choice.library, choice.missing) == (None, True)
    assert choice.warning is not None
    assert why in choice.warning.message
    assert "libopenblas0" in str(choice.warning.remediation)


def test_a_system_with_a_fast_library_has_nothing_to_warn_of() -> None:
    assert choose(is_file=lambda _: True).warning is None


def test_a_chosen_library_is_preloaded_with_one_thread() -> None:
    environ = runner_environ({}, BlasChoice("/lib/b.so", "x"), Path("/code"))
    assert environ["LD_PRELOAD"] == "/lib/b.so"
    assert environ["OPENBLAS_NUM_THREADS"] == "1"


def test_what_the_operator_has_set_is_kept() -> None:
    given = {"LD_PRELOAD": "/lib/a.so", "OPENBLAS_NUM_THREADS": "4", "MLX_METAL_JIT": "1"}
    environ = runner_environ(given, BlasChoice("/lib/b.so", "x"), Path("/code"))
    assert environ["LD_PRELOAD"] == "/lib/b.so:/lib/a.so"
    assert environ["OPENBLAS_NUM_THREADS"] == "4"
    assert environ["MLX_METAL_JIT"] == "1"


def test_nothing_is_preloaded_without_a_library() -> None:
    environ = runner_environ({"LD_PRELOAD": "/lib/a.so"}, NONE, Path("/code"))
    assert environ["LD_PRELOAD"] == "/lib/a.so"
    assert "OPENBLAS_NUM_THREADS" not in environ


def test_secrets_of_the_daemon_stay_with_it() -> None:
    given = {"SKULK_CLUSTER_SECRET": "s", "HF_TOKEN": "t", "HOME": "/home/me"}
    environ = runner_environ(given, NONE, Path("/code"))
    assert not {"SKULK_CLUSTER_SECRET", "HF_TOKEN"} & environ.keys()
    assert environ["HOME"] == "/home/me"


@pytest.mark.parametrize(("given", "path"), [({}, "/code"), ({"PYTHONPATH": "/x"}, "/code:/x")])
def test_the_runner_runs_the_code_of_its_daemon(given: dict[str, str], path: str) -> None:
    assert runner_environ(given, NONE, Path("/code"))["PYTHONPATH"] == path

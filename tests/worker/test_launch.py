"""The environment that a runner is started with, and the warning about a slow BLAS."""

from __future__ import annotations

from pathlib import Path

import pytest

from skulkd.worker.launch import runner_environ
from skulkd.worker.worker import slow_blas_warning


def test_the_warning_about_a_slow_blas_names_the_reason_and_the_setting() -> None:
    warning = slow_blas_warning("the package scipy-openblas32 is not installed")
    assert "the package scipy-openblas32 is not installed" in warning.message
    assert "runtime.blas" in str(warning.remediation)


def test_secrets_of_the_daemon_stay_with_it() -> None:
    given = {"SKULK_CLUSTER_SECRET": "s", "HF_TOKEN": "t", "HOME": "/home/me"}
    environ = runner_environ(given, Path("/code"))
    assert not {"SKULK_CLUSTER_SECRET", "HF_TOKEN"} & environ.keys()
    assert environ["HOME"] == "/home/me"


@pytest.mark.parametrize(("given", "path"), [({}, "/code"), ({"PYTHONPATH": "/x"}, "/code:/x")])
def test_the_runner_runs_the_code_of_its_daemon(given: dict[str, str], path: str) -> None:
    assert runner_environ(given, Path("/code"))["PYTHONPATH"] == path

"""NVIDIA GPUs: real calls through ctypes to a library that answers from recordings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skulkd.machine import mlx_build
from skulkd.machine.accelerator_nvidia import Gpu, Survey, choose_gpu
from skulkd.machine.warnings import gpu_warnings
from skulkd.wire.machine import AcceleratorMetrics
from tests.daemon_process import ROOT
from tests.nvml_library import RECORDINGS, build_nvml, nvml_environ

READ_ALL = """
import json, os, sys
from pathlib import Path
from skulkd.machine.accelerator import read_accelerator
from skulkd.machine.nvml import Nvml, NvmlError
nothing, found = Path(sys.argv[1]), {}
for recording in map(Path, sys.argv[2:]):
    os.environ["NVML_RECORDING"] = str(recording)
    Nvml.close()
    try:
        reading = read_accelerator(nothing)
        metrics = reading.metrics.model_dump(exclude_none=True)
        found[recording.stem] = {"metrics": metrics, "warnings": reading.warnings}
    except NvmlError as error:
        found[recording.stem] = {"error": str(error)}
print(json.dumps(found))
"""
READ_HUNG = """
import asyncio, sys
from pathlib import Path
from skulkd.machine.collect import MachineMonitor
monitor = MachineMonitor(
    name="n", models_dir=Path("/"), version="1", deadlines={"accelerator": 0.1, "identity": 300}
)
found = asyncio.run(monitor.read())
assert found.memory is not None and found.system is not None and found.system.accelerator is None
print("\\n".join(found.warnings))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_nvml(tmp_path_factory.mktemp("nvml"))


def _run(code: str, environ: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def readings(library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What every recording is read as, by its name; one that hangs would hang here."""
    recordings = [str(path) for path in RECORDINGS.glob("*.txt") if path.stem != "hung"]
    nothing = str(tmp_path_factory.mktemp("no-sysfs"))
    found: dict[str, Any] = json.loads(
        _run(READ_ALL, nvml_environ(library, "none"), nothing, *recordings)
    )
    return found


def test_a_gpu_is_read_in_our_units(readings: dict[str, Any]) -> None:
    assert readings["h100"]["metrics"] == {
        "vendor": "nvidia",
        "name": "NVIDIA H100 80GB HBM3",
        "utilizationRatio": 0.37,
        "vramTotalBytes": 85520809984,
        "vramUsedBytes": 1073741824,
        "powerWatts": 118.42,
        "temperatureCelsius": 41.0,
        "clockMhz": 1980,
    }


def test_of_several_gpus_the_largest_is_chosen_and_counted(readings: dict[str, Any]) -> None:
    assert readings["workstation"]["metrics"]["name"] == "NVIDIA GeForce RTX 4090 (1 of 2)"


def test_memory_shared_with_the_host_is_unknown_not_zero(readings: dict[str, Any]) -> None:
    assert readings["gb10"]["metrics"] == {
        "vendor": "nvidia",
        "name": "NVIDIA GB10",
        "utilizationRatio": 0.0,
        "temperatureCelsius": 39.0,
        "clockMhz": 208,
    }


def test_a_gpu_in_slices_is_used_by_its_largest_slice(readings: dict[str, Any]) -> None:
    assert readings["mig"]["metrics"] == {
        "vendor": "nvidia",
        "name": "NVIDIA A100-SXM4-40GB MIG 3g.20gb (1 of 2)",
        "vramTotalBytes": 20937965568,
        "vramUsedBytes": 37965568,
    }


def test_a_lost_gpu_is_named_and_the_other_is_used(readings: dict[str, Any]) -> None:
    assert readings["one_lost"]["metrics"]["name"] == "NVIDIA L4"
    assert any(
        warning.startswith("GPU 0: NVIDIA driver: GPU is lost")
        for warning in readings["one_lost"]["warnings"]
    )


@pytest.mark.parametrize(
    ("recording", "cure"),
    [
        ("mismatch", "reboot this machine"),
        ("not_loaded", "modprobe nvidia"),
        ("no_permission", "/dev/nvidia*"),
    ],
)
def test_a_broken_driver_is_an_error_with_its_cure_and_not_a_cpu(
    readings: dict[str, Any], recording: str, cure: str
) -> None:
    assert readings[recording]["error"].startswith("NVIDIA driver: ")
    assert cure in readings[recording]["error"]


def test_a_driver_without_a_gpu_means_cpu(readings: dict[str, Any]) -> None:
    assert readings["none"]["metrics"]["vendor"] == "cpu"
    assert readings["none"]["warnings"] == []


def test_a_driver_that_hangs_costs_only_the_accelerator(library: Path) -> None:
    [warning] = _run(READ_HUNG, nvml_environ(library, "hung")).splitlines()
    assert warning.startswith("accelerator: no answer within 0.1 s")


READ_HOLDERS = """
import os, sys
from pathlib import Path
from skulkd.machine.accelerator_nvidia import read_nvidia
from skulkd.machine.gpu_holders import held_by_others
recording = Path(os.environ["NVML_RECORDING"])
recording.write_text(recording.read_text() + f" {os.getpid()}:9000000000\\n")
[gpu] = read_nvidia().gpus
assert len(gpu.processes) == 4, gpu.processes
print("\\n".join(held_by_others(gpu)))
"""


def test_memory_that_other_processes_hold_is_named_with_them(library: Path, tmp_path: Path) -> None:
    """Not our own, not what is small, and not what this system does not know."""
    recording = tmp_path / "held.txt"
    held = f"{os.getpid()}:3221225472 {os.getppid()}:1000 {2**31 - 1}:9000000000"
    recording.write_text(
        f"count=1\ngpu0.name=NVIDIA L4\ngpu0.uuid=GPU-1\ngpu0.memory=9,9\ngpu0.processes={held}"
    )
    environ = {**nvml_environ(library, "none"), "NVML_RECORDING": str(recording)}
    [warning] = _run(READ_HOLDERS, environ).splitlines()
    assert warning.startswith("3.0 GiB of NVIDIA L4 are held by ")
    assert f"(pid {os.getpid()})" in warning


def _gpu(index: int, uuid: str, gib: int | None) -> Gpu:
    total = None if gib is None else gib * 1024**3
    return Gpu(index, uuid, AcceleratorMetrics(vendor="nvidia", name=uuid, vram_total_bytes=total))


SMALL, LARGE = _gpu(0, "GPU-aa-1", 8), _gpu(1, "GPU-bb-2", 24)
SLICE_A, SLICE_B = _gpu(0, "MIG-aa-1", 5), _gpu(0, "MIG-bb-2", 20)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        pytest.param(None, LARGE, id="not set: the largest"),
        pytest.param("0", SMALL, id="by number"),
        pytest.param("1,0", LARGE, id="the first of a list"),
        pytest.param(" GPU-aa-1 ", SMALL, id="by uuid"),
        pytest.param("GPU-b", LARGE, id="by the beginning of a uuid"),
        pytest.param("7", None, id="a number that is not there"),
        pytest.param("GPU-", None, id="no beginning at all"),
        pytest.param("-1", None, id="hidden"),
        pytest.param("", None, id="hidden by nothing"),
    ],
)
def test_cuda_visible_devices_chooses_the_gpu(visible: str | None, expected: Gpu | None) -> None:
    assert choose_gpu([SMALL, LARGE], visible) == expected


def test_a_slice_is_chosen_by_uuid_and_by_the_number_of_its_gpu() -> None:
    assert choose_gpu([SLICE_A, SLICE_B], "MIG-bb-2") == SLICE_B
    assert choose_gpu([SLICE_A, SLICE_B], "0") == SLICE_A
    assert choose_gpu([], None) is None
    assert choose_gpu([_gpu(0, "GPU-shared", None)], None) is not None


BOTH = Survey((SMALL, LARGE))


@pytest.mark.parametrize(
    ("build", "survey", "visible", "words"),
    [
        pytest.param("cpu", Survey(), None, [], id="no gpu, cpu build"),
        pytest.param("cpu", BOTH, None, ["install skulk-toolkit[cuda]"], id="gpu not used"),
        pytest.param("cuda", Survey((SMALL,)), None, [], id="one gpu"),
        pytest.param("cuda", BOTH, None, ["1 of 2 GPUs is used, GPU-bb-2"], id="several"),
        pytest.param("cuda", BOTH, "0", [], id="several, one named"),
        pytest.param("cuda", BOTH, "7", ["CUDA_VISIBLE_DEVICES=7 names none"], id="bad name"),
        pytest.param("cuda", Survey(), None, ["no NVIDIA GPU was found"], id="cuda, no gpu"),
    ],
)
def test_what_does_not_fit_together_is_said(
    build: mlx_build.MlxBuild, survey: Survey, visible: str | None, words: list[str]
) -> None:
    found = gpu_warnings(build, (build,), survey, choose_gpu(survey.gpus, visible), visible)
    assert len(found) == len(words)
    assert all(word in warning for word, warning in zip(words, found, strict=True))


def test_two_builds_of_mlx_are_warned_of() -> None:
    [warning] = gpu_warnings("cuda", ("mlx-cuda-12", "mlx-cpu"), Survey((SMALL,)), SMALL, None)
    assert "mlx-cuda-12, mlx-cpu" in warning


@pytest.mark.skipif(sys.platform != "linux", reason="CUDA is for Linux; on a Mac MLX uses Metal")
def test_the_build_of_mlx_is_known_by_its_distribution(tmp_path: Path) -> None:
    code = "from skulkd.machine.mlx_build import *; print(mlx_build(), *installed_builds())"
    assert _run(code, {}).split() == ["cpu", "mlx-cpu"]
    about = tmp_path / "mlx_cuda_13-1.0.dist-info/METADATA"
    about.parent.mkdir()
    about.write_text("Metadata-Version: 2.1\nName: mlx-cuda-13\nVersion: 1.0\n")
    path = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    assert _run(code, path).split() == ["cuda", "mlx-cuda-13", "mlx-cpu"]

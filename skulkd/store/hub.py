"""Fetching a model from a Hugging Face hub, in a child process: `python -m skulkd.store fetch`.

huggingface_hub downloads and resumes; it does not compare what it got with the hub's checksums,
so every file is verified here. The directory appears under its name only when all are right; what
an interrupted fetch left is used by the next one.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, errors

from skulkd.store.building import require_space
from skulkd.store.errors import (
    BusyError,
    DownloadError,
    FileAccessError,
    HubUnreachableError,
    StoreError,
    UnknownModelError,
)
from skulkd.store.manifest import why_not_a_path
from skulkd.store.model_ids import check_model_id, directory_name
from skulkd.store.progress import Progress, Report
from skulkd.store.staging_area import tree_bytes

FETCHING = ".fetching-"
ATTEMPTS = 5
WATCH_S = 0.5
CONTACT_S = 10.0
_SKIPPED = ("original/*", "metal/*")
_OTHER_WEIGHTS = ("*.bin", "*.pth", "*.pt", "*.msgpack", "*.h5", "*.onnx", "*.gguf", "*.ot")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file as the hub describes it. `sha256` is known of large files, `blob` of the others."""

    path: str
    size: int
    sha256: str | None
    blob: str | None


class _WrongBytes(DownloadError):
    """A file is not what the hub says it is."""


def fetch_model(
    model_id: str,
    root: Path,
    environ: Mapping[str, str],
    report: Report,
    *,
    gguf_file: str | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Path:
    """The directory of the whole model below `root`. Raises StoreError."""
    target = root / directory_name(check_model_id(model_id))
    if target.is_dir():
        return target
    if environ.get("SKULK_OFFLINE", "").lower() == "true":
        raise DownloadError(
            f"{model_id} is not here, and this node is offline (SKULK_OFFLINE)",
            hint="bring the files by hand:  skulkctl model import PATH --id " + model_id,
        )
    try:
        with _scratch(root, target.name) as scratch:
            hub = hub_api(environ)
            found = _with_patience(lambda: list_files(hub, model_id), pause)
            files = choose_files(model_id, found, gguf_file)
            missing = sum(file.size for file in files) - tree_bytes(scratch)
            require_space(scratch, max(0, missing))
            with _watched(scratch, files, report):
                for file in files:
                    _bring(hub, model_id, file, scratch, pause)
            shutil.rmtree(scratch / ".cache", ignore_errors=True)
            scratch.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DownloadError(f"the disk of {root} is full", hint="skulkctl storage") from error
        raise FileAccessError.of(error, root) from error
    return target


def hub_api(environ: Mapping[str, str]) -> HfApi:
    """The hub that this machine uses."""
    return HfApi(endpoint=environ.get("HF_ENDPOINT") or None, token=environ.get("HF_TOKEN"))


def list_files(hub: HfApi, model_id: str) -> list[HubFile]:
    """What the hub has. Raises HubUnreachableError, which is final: nothing has begun yet."""
    try:
        info = hub.model_info(model_id, files_metadata=True, timeout=CONTACT_S)
    except Exception as error:
        answered = isinstance(error, errors.HfHubHTTPError) and error.response is not None
        if answered or isinstance(error, OSError):
            raise
        raise HubUnreachableError(
            f"the hub at {hub.endpoint} cannot be reached: {_first_line(error)}",
            hint="check the network and HF_ENDPOINT of that machine, or bring the files by hand:"
            f"  skulkctl model import PATH --id {model_id}",
        ) from error
    return [_described(sibling) for sibling in info.siblings or ()]


def choose_files(model_id: str, files: list[HubFile], gguf_file: str | None) -> list[HubFile]:
    """What of a repository is fetched: weights in one form, and everything small."""
    usable = [
        file
        for file in files
        if why_not_a_path(file.path) is None
        and not any(fnmatch(file.path, pattern) for pattern in _SKIPPED)
    ]
    if gguf_file is not None:
        stem = gguf_file.removesuffix(".gguf")
        usable = [
            file
            for file in usable
            if file.path in (gguf_file, "config.json")
            or fnmatch(file.path, f"{stem}-*-of-*.gguf")
            or ("mmproj" in file.path.lower() and file.path.endswith(".gguf"))
        ]
    elif any(file.path.endswith(".safetensors") for file in usable):
        usable = [
            file
            for file in usable
            if not any(fnmatch(file.path, pattern) for pattern in _OTHER_WEIGHTS)
        ]
    if not usable:
        raise UnknownModelError(f"the hub has no files of {model_id} that could be used")
    return usable


def _described(sibling: Any) -> HubFile:
    lfs = sibling.lfs
    return HubFile(
        path=str(sibling.rfilename),
        size=int(sibling.size or 0),
        sha256=None if lfs is None else str(lfs.sha256),
        blob=sibling.blob_id,
    )


def _bring(
    hub: HfApi, model_id: str, file: HubFile, scratch: Path, pause: Callable[[float], None]
) -> None:
    target = scratch / file.path
    if target.is_file() and _is_right(target, file):
        return

    def attempt() -> None:
        hub.hf_hub_download(model_id, file.path, local_dir=scratch)
        if not _is_right(target, file):
            # The library would take it for the right one next time.
            target.unlink(missing_ok=True)
            shutil.rmtree(scratch / ".cache", ignore_errors=True)
            raise _WrongBytes(
                f"{file.path} of {model_id} is not what the hub says: its checksum is wrong"
            )

    _with_patience(attempt, pause)


def _with_patience(attempt: Callable[[], Any], pause: Callable[[float], None]) -> Any:
    """Try again after trouble that passes, with longer and longer pauses. Raises StoreError."""
    for number in range(1, ATTEMPTS + 1):
        try:
            return attempt()
        except Exception as error:
            told = told_error(error)
            if number == ATTEMPTS or not _passes(error):
                raise told from error
            pause(float(2 ** (number - 1)))
    return None


def told_error(error: Exception) -> Exception:
    """What went wrong, in our words; an error of the system stays what it is."""
    if isinstance(error, StoreError) or (isinstance(error, OSError) and error.errno):
        return error
    if isinstance(error, errors.GatedRepoError):
        return DownloadError(
            "the hub wants you to accept the model's terms first",
            hint="accept them on its page, then set HF_TOKEN or hf_token in skulk.yaml",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return UnknownModelError(
            "the hub has no such model, or it is private",
            hint="check the id; for a private one set HF_TOKEN or hf_token in skulk.yaml",
        )
    if isinstance(error, errors.HfHubHTTPError) and error.response is not None:
        return DownloadError(f"the hub answered {error.response.status_code}")
    return DownloadError(f"the hub cannot be used: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _passes(error: Exception) -> bool:
    if isinstance(error, errors.RepositoryNotFoundError | errors.GatedRepoError):
        return False
    if isinstance(error, errors.HfHubHTTPError) and error.response is not None:
        return error.response.status_code in (408, 429) or error.response.status_code >= 500
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return False
    return isinstance(error, _WrongBytes) or not isinstance(error, StoreError)


def _is_right(path: Path, file: HubFile) -> bool:
    if path.stat().st_size != file.size:
        return False
    if file.sha256 is not None:
        return _digest(path, hashlib.sha256()) == file.sha256
    if file.blob is None or len(file.blob) != 40:
        return True
    # Small files are named by git: the checksum of a header and the content.
    git = hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)
    return _digest(path, git) == file.blob


def _digest(path: Path, digest: Any) -> str:
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return str(digest.hexdigest())


@contextlib.contextmanager
def _scratch(root: Path, name: str) -> Iterator[Path]:
    """The place of an unfinished fetch; it stays when the fetch fails, and only one uses it."""
    path = root / f"{FETCHING}{name}"
    path.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"{name} is being fetched by another process") from None
        yield path
    finally:
        os.close(fd)


@contextlib.contextmanager
def _watched(scratch: Path, files: list[HubFile], report: Report) -> Iterator[None]:
    """Tell how much is on disk while the block runs."""
    total = sum(file.size for file in files)
    over = threading.Event()

    def tell() -> None:
        report(Progress("download", min(tree_bytes(scratch), total), total, "files"))

    def watch() -> None:
        while not over.wait(WATCH_S):
            tell()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    tell()

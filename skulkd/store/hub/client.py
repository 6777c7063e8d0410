"""Downloads from a Hugging Face hub: whole models, and cards. Runs in a child process only.

huggingface_hub downloads and resumes; it does not compare files with the hub's checksums, so every
file is verified here. The directory gets its name only when all files are verified; an interrupted
download is continued by the next one.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, errors

from skulkd.store.atomic_directory import Report, require_space
from skulkd.store.cards.from_config import card_from_config
from skulkd.store.errors import (
    BusyError,
    DownloadError,
    FileAccessError,
    HubTimeoutError,
    HubUnreachableError,
    StoreError,
    UnknownModelError,
    UnsupportedModelError,
)
from skulkd.store.manifest import path_problem
from skulkd.store.model_directory import CONFIG_FILE, MODULES_FILE, chat_template, read_json_object
from skulkd.store.model_ids import check_model_id, directory_name
from skulkd.store.staging.area import tree_bytes
from skulkd.wire.cards import ModelCard

FETCHING = ".fetching-"
ATTEMPTS = 5
WATCH_S = 0.5
CONTACT_S = 10.0
_SKIPPED = ("original/*", "metal/*")
_OTHER_WEIGHTS = ("*.bin", "*.pth", "*.pt", "*.msgpack", "*.h5", "*.onnx", "*.gguf", "*.ot")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file as the hub describes it: `sha256` of large files, git's `blob` id of the others."""

    path: str
    size: int
    sha256: str | None
    blob: str | None


class _WrongChecksum(DownloadError):
    """A file does not match the hub's checksum."""


def fetch_model(
    model_id: str,
    root: Path,
    environ: Mapping[str, str],
    report: Report,
    *,
    gguf_file: str | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Path:
    """Download a model below `root` and return its directory. Raises StoreError."""
    target = root / directory_name(check_model_id(model_id))
    if target.is_dir():
        return target
    if environ.get("SKULK_OFFLINE", "").lower() == "true":
        raise DownloadError(
            f"{model_id} is not here, and this node is offline (SKULK_OFFLINE)",
            hint="import the files instead:  skulkctl model import PATH --id " + model_id,
        )
    try:
        with _scratch(root, target.name) as scratch:
            hub = hub_api(environ)
            found = _retry(lambda: list_files(hub, model_id), pause)
            files = choose_files(model_id, found, gguf_file)
            missing = sum(file.size for file in files) - tree_bytes(scratch)
            require_space(scratch, max(0, missing))
            with _report_progress(scratch, files, report):
                for file in files:
                    _download_file(hub, model_id, file, scratch, pause)
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


def list_files(hub: HfApi, model_id: str, timeout_s: float = CONTACT_S) -> list[HubFile]:
    """The files of a model. Raises HubUnreachableError or HubTimeoutError; neither is retried."""
    try:
        info = hub.model_info(model_id, files_metadata=True, timeout=timeout_s)
    except Exception as error:
        answered = isinstance(error, errors.HfHubHTTPError) and error.response is not None
        if answered or isinstance(error, OSError):
            raise
        if _timed_out(error):
            text = f"timed out waiting for the hub at {hub.endpoint} ({timeout_s:g} s)"
            hint = "try again, or check the network of that machine"
            raise HubTimeoutError(text, hint=hint) from error
        raise HubUnreachableError(
            f"the hub at {hub.endpoint} is unreachable: {_first_line(error)}",
            hint="check the network and HF_ENDPOINT of that machine, or import the files:"
            f"  skulkctl model import PATH --id {model_id}",
        ) from error
    return [_hub_file(sibling) for sibling in info.siblings or ()]


def choose_files(model_id: str, files: list[HubFile], gguf_file: str | None) -> list[HubFile]:
    """The files of a repository to download: weights in one format, and everything else."""
    usable = [
        file
        for file in files
        if path_problem(file.path) is None
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
        raise UnknownModelError(f"the hub has no usable files of {model_id}")
    return usable


def _hub_file(sibling: Any) -> HubFile:
    lfs = sibling.lfs
    return HubFile(
        path=str(sibling.rfilename),
        size=int(sibling.size or 0),
        sha256=None if lfs is None else str(lfs.sha256),
        blob=sibling.blob_id,
    )


def _download_file(
    hub: HfApi, model_id: str, file: HubFile, scratch: Path, pause: Callable[[float], None]
) -> None:
    target = scratch / file.path
    if target.is_file() and _is_valid(target, file):
        return

    def attempt() -> None:
        hub.hf_hub_download(model_id, file.path, local_dir=scratch)
        if not _is_valid(target, file):
            # Otherwise the library would use it the next time.
            target.unlink(missing_ok=True)
            shutil.rmtree(scratch / ".cache", ignore_errors=True)
            raise _WrongChecksum(f"{file.path} of {model_id} does not match the hub's checksum")

    _retry(attempt, pause)


def _retry(attempt: Callable[[], Any], pause: Callable[[float], None]) -> Any:
    """Retry after temporary errors, with growing pauses. Raises StoreError."""
    for number in range(1, ATTEMPTS + 1):
        try:
            return attempt()
        except Exception as error:
            if number == ATTEMPTS or not _is_retryable(error):
                raise as_store_error(error) from error
            pause(float(2 ** (number - 1)))
    return None


def as_store_error(error: Exception) -> Exception:
    """The StoreError for an error of the library; an OSError stays what it is."""
    if isinstance(error, StoreError) or (isinstance(error, OSError) and error.errno):
        return error
    if isinstance(error, errors.GatedRepoError):
        return DownloadError(
            "the hub requires you to accept the model's terms first",
            hint="accept them on its page, then set HF_TOKEN or hf_token in skulk.yaml",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return UnknownModelError(
            "the hub has no such model, or it is private",
            hint="check the id; for a private one set HF_TOKEN or hf_token in skulk.yaml",
        )
    if isinstance(error, errors.HfHubHTTPError) and error.response is not None:
        return DownloadError(f"the hub responded with {error.response.status_code}")
    return DownloadError(f"request to the hub failed: {_first_line(error)}")


def _timed_out(error: Exception) -> bool:
    """By name: which HTTP client the library uses differs between its versions."""
    return any(kind.__name__ == "TimeoutException" for kind in type(error).__mro__)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _is_retryable(error: Exception) -> bool:
    if isinstance(error, errors.RepositoryNotFoundError | errors.GatedRepoError):
        return False
    if isinstance(error, errors.HfHubHTTPError) and error.response is not None:
        return error.response.status_code in (408, 429) or error.response.status_code >= 500
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return False
    return isinstance(error, _WrongChecksum) or not isinstance(error, StoreError)


def _is_valid(path: Path, file: HubFile) -> bool:
    if path.stat().st_size != file.size:
        return False
    if file.sha256 is not None:
        return _digest(path, hashlib.sha256()) == file.sha256
    if file.blob is None or len(file.blob) != 40:
        return True
    # The blob id of a small file is git's checksum of a header and the content.
    git = hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)
    return _digest(path, git) == file.blob


def _digest(path: Path, digest: Any) -> str:
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return str(digest.hexdigest())


@contextlib.contextmanager
def _scratch(root: Path, name: str) -> Iterator[Path]:
    """The directory of an incomplete download, locked; it stays when the download fails."""
    path = root / f"{FETCHING}{name}"
    path.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"{name} is being downloaded by another process") from None
        yield path
    finally:
        os.close(fd)


@contextlib.contextmanager
def _report_progress(scratch: Path, files: list[HubFile], report: Report) -> Iterator[None]:
    """Report the bytes on disk while the block runs."""
    total = sum(file.size for file in files)
    over = threading.Event()

    def send() -> None:
        report("download", min(tree_bytes(scratch), total), total, "files")

    def watch() -> None:
        while not over.wait(WATCH_S):
            send()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    send()


_DOCUMENTS = (CONFIG_FILE, "tokenizer_config.json", "chat_template.jinja")


def describe_model(model_id: str, environ: Mapping[str, str]) -> ModelCard:
    """The card of a model, from its `config.json` and file list. Raises StoreError.

    Nothing is retried, because a client waits.
    """
    check_model_id(model_id)
    hub = hub_api(environ)
    try:
        files = list_files(hub, model_id)
        size_bytes = _weight_bytes(model_id, files)
        with tempfile.TemporaryDirectory() as place:
            names = _download(hub, model_id, files, Path(place))
            config = read_json_object(Path(place) / CONFIG_FILE)
            template = chat_template(Path(place), names)
    except Exception as error:
        raise as_store_error(error) from error
    embeds = any(file.path == MODULES_FILE for file in files)
    return card_from_config(model_id, config, size_bytes, template, embeds=embeds)


def _weight_bytes(model_id: str, files: list[HubFile]) -> int:
    if not any(file.path == CONFIG_FILE for file in files):
        raise UnknownModelError(f"the hub has no {CONFIG_FILE} of {model_id}")
    size_bytes = sum(file.size for file in files if file.path.endswith(".safetensors"))
    if size_bytes == 0:
        raise UnsupportedModelError(
            f"{model_id} has no safetensors weights on the hub",
            hint="a GGUF file can be imported:  skulkctl model import FILE.gguf",
        )
    return size_bytes


def _download(hub: HfApi, model_id: str, files: list[HubFile], place: Path) -> set[str]:
    wanted = {file.path for file in files} & set(_DOCUMENTS)
    for path in wanted:
        hub.hf_hub_download(model_id, path, local_dir=place)
    return wanted

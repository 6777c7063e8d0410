"""Errors of model files.

StoreError
├── BadModelIdError        the id cannot be used as `org/name`
├── UnsupportedModelError  a valid file of a kind that cannot be imported
├── BrokenModelError       a damaged, truncated or incomplete file or directory
├── BadCardError           a card file that cannot be used
├── UnknownModelError      no card or no files of that id
├── ModelExistsError       the id is already used
├── NoSpaceError           the disk is too small for the result
├── DownloadError          a download from a registry, hub or store failed
│   ├── HubUnreachableError  no connection to the hub
│   ├── HubTimeoutError      the hub did not answer in time; whether it has a model is not known
│   └── StoreFetchError      the store does not have the model and cannot download it
├── StoreUnreachableError  no connection to the store host, or it timed out
├── BadManifestError       a manifest or a store response that must not be used
├── UploadOffsetError      an upload continues at another byte than the one that was sent
├── BusyError              these files are in use right now
├── StagingPlaceError      a purge of the staging area would delete originals
└── FileAccessError        the operating system refused to read or write
"""

from collections.abc import Iterable
from pathlib import Path

from skulkd.settings.problems import Problem


class StoreError(Exception):
    """`message` is one line: what failed and why; `hint` is what the operator can do."""

    kind = "store_error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = message
        self.hint = hint
        super().__init__(message)


class BadModelIdError(StoreError):
    kind = "bad_model_id"


class UnsupportedModelError(StoreError):
    kind = "unsupported_model"


class BrokenModelError(StoreError):
    kind = "broken_model"


class BadCardError(StoreError):
    """Carries one problem for each thing to correct."""

    kind = "bad_card"

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problem.render() for problem in self.problems))


class UnknownModelError(StoreError):
    kind = "unknown_model"


class ModelExistsError(StoreError):
    kind = "model_exists"


class NoSpaceError(StoreError):
    kind = "no_space"


class DownloadError(StoreError):
    kind = "download_failed"


class HubUnreachableError(DownloadError):
    kind = "hub_unreachable"


class HubTimeoutError(DownloadError):
    kind = "hub_timeout"


class StoreFetchError(DownloadError):
    """It would be the same on every other node."""

    kind = "store_fetch_failed"


class StoreUnreachableError(StoreError):
    kind = "store_unreachable"


class BadManifestError(StoreError):
    kind = "bad_manifest"


class UploadOffsetError(StoreError):
    kind = "upload_offset"


class BusyError(StoreError):
    kind = "busy"


class StagingPlaceError(StoreError):
    kind = "staging_place"


class FileAccessError(StoreError):
    kind = "file_access"

    @classmethod
    def of(cls, error: OSError, path: Path) -> "FileAccessError":
        """The error of the system, with the path it is about."""
        return cls(f"{error.filename or path}: {error.strerror or error}")

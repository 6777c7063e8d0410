"""What can go wrong with model files. Must not know who asked.

StoreError
├── BadModelIdError        the id cannot be used as `org/name`
├── UnsupportedModelError  a sound file of a kind that we cannot import
├── BrokenModelError       a damaged, truncated or incomplete file or directory
├── BadCardError           a card file that cannot be used
├── UnknownModelError      no card or no files of that id
├── ModelExistsError       the id is taken
├── NoSpaceError           the disk is too small for the result
├── DownloadError          a registry, hub or store did not give us the file
│   ├── HubUnreachableError  no connection to the hub, or it does not answer
│   └── StoreFetchError      the store does not have the model and cannot fetch it
├── StoreUnreachableError  nobody answers where the store should be
├── BadManifestError       a store told us something that we must not act on
├── UploadOffsetError      an upload goes on at another byte than the one that was sent
├── BusyError              somebody works on these files right now
├── StagingPlaceError      staging lies where originals would be deleted with it
└── FileAccessError        the operating system refused to read or write
"""

from collections.abc import Iterable
from pathlib import Path

from skulkd.settings.problems import Problem


class StoreError(Exception):
    """Says what failed and why in one line; `hint` says what the operator can do."""

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


class StoreFetchError(DownloadError):
    """Every node that needs the model gets the same answer."""

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

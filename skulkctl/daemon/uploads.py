"""Calls about sending a model to a node: where it goes, each file, and registering it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skulkctl.daemon.answers import Upload
from skulkctl.daemon.calls import Call, call

if TYPE_CHECKING:
    from skulkd.wire.uploads import (
        UploadedBytes,
        UploadedModel,
        UploadPlace,
        UploadRequest,
        UploadState,
    )

_PATH = "/v1/model-uploads"
PIECE_S = 60.0
COMMIT_S = 600.0
"""The node reads every file once more."""


def upload_place() -> Call[UploadPlace]:
    """Where models that are sent to this node go. Raises RouteMissing when it takes none."""
    from skulkd.wire.uploads import UploadPlace

    return call("GET", _PATH, UploadPlace)


def begin_upload(wanted: UploadRequest) -> Call[UploadState]:
    """Begin, or go on with, an upload; what has arrived so far. Refused when the model exists."""
    from skulkd.wire.uploads import UploadState

    return call("POST", _PATH, UploadState, body=wanted)


def send_file(model_id: str, path: str, offset: int, content: Upload) -> Call[UploadedBytes]:
    """Send a file of a model from the byte at `offset` to its end."""
    from skulkd.wire.uploads import UploadedBytes

    query = [("model_id", model_id), ("path", path), ("offset", str(offset))]
    return call("PUT", f"{_PATH}/file", UploadedBytes, query=query, body=content, usual_s=PIECE_S)


def commit_upload(model_id: str, *, replace: bool) -> Call[UploadedModel]:
    """Have the node check and register a model all of whose files have arrived."""
    from skulkd.wire.ids import ModelId
    from skulkd.wire.uploads import UploadedModel, UploadModel

    query = [("replace", "true")] if replace else []
    wanted = UploadModel(model_id=ModelId(model_id))
    return call(
        "POST", f"{_PATH}/commit", UploadedModel, query=query, body=wanted, usual_s=COMMIT_S
    )

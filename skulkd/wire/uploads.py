"""Model files that an operator sends to a node: `/v1/model-uploads`. Ours, not the reference's."""

from typing import Literal

from pydantic import Field, NonNegativeInt

from skulkd.wire.base import CamelModel
from skulkd.wire.ids import ModelId, NodeId

UploadTarget = Literal["store", "models"]


class UploadFile(CamelModel):
    path: str = Field(description="Relative, with slashes.")
    size: NonNegativeInt
    sha256: str


class UploadRequest(CamelModel):
    """Begin an upload, or take one up that was interrupted: then with the same files."""

    model_id: ModelId
    files: list[UploadFile]
    replace: bool = Field(default=False, description="Replace a model that has this id.")


class UploadState(CamelModel):
    model_id: ModelId
    received: dict[str, int] = Field(description="Bytes that are there, by path.")


class UploadedBytes(CamelModel):
    path: str
    received_bytes: int = Field(description="Of this file, in all.")


class UploadModel(CamelModel):
    model_id: ModelId


class UploadedModel(CamelModel):
    model_id: ModelId
    target: UploadTarget
    size_bytes: int


class UploadPlace(CamelModel):
    """Where models that are sent to this node go."""

    node_id: NodeId
    name: str
    target: UploadTarget = Field(description="The shared store, or this node's models directory.")
    directory: str | None = Field(
        default=None, description="The models directory, when models go there."
    )
    directory_mark: str | None = Field(
        default=None, description="Device and inode: whether a client sees the same directory."
    )

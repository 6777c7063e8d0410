"""Lines that `python -m skulkd.store` writes while it brings a model to this machine."""

from typing import Annotated, Any, Literal

from pydantic import Field

from skulkd.wire.base import SnakeModel


class ImportProgress(SnakeModel):
    event: Literal["progress"] = "progress"
    phase: str = Field(description="download, unpack, convert or copy.")
    done_bytes: int
    total_bytes: int | None = None
    item: str | None = None


class ImportDone(SnakeModel):
    event: Literal["done"] = "done"
    model_id: str
    path: str


class DescribeDone(SnakeModel):
    """The last line of `describe`, which looks a card up and brings nothing."""

    event: Literal["done"] = "done"
    model_id: str
    card: dict[str, Any] = Field(description="A `ModelCard`.")


class ImportFailed(SnakeModel):
    event: Literal["error"] = "error"
    kind: str = Field(description="For programs, as `skulkd.store.errors` has them.")
    message: str
    hint: str | None = None


ImportEvent = Annotated[ImportProgress | ImportDone | ImportFailed, Field(discriminator="event")]

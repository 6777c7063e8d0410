"""`GET /v1/events`: the event log as lines that can be followed. Ours."""

from typing import Any

from pydantic import Field

from skulkd.wire.base import SnakeModel


class EventQuery(SnakeModel):
    after: int = Field(default=0, ge=0, description="First position that is wanted.")
    since: float | None = Field(default=None, ge=0, description="Seconds since 1970, UTC.")
    kind: str = Field(default="", description="Kinds that are wanted, separated by commas.")
    follow: bool = Field(default=False, description="Go on with what happens from now on.")
    limit: int | None = Field(default=None, ge=1, description="End after so many.")


class EventLine(SnakeModel):
    """One event with its place in the log."""

    index: int = Field(description="Position in this session.")
    at: str | None = Field(description="UTC; null when it is not known.")
    kind: str
    event: dict[str, dict[str, Any]] = Field(
        description="An object with one key, the kind; its fields are in snake_case."
    )

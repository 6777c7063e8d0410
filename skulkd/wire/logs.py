"""Log lines over the API. Ours; the reference has no such endpoint."""

from pydantic import AwareDatetime, Field

from skulkd.wire.base import CamelModel, SnakeModel
from skulkd.wire.ids import NodeId, RunnerId

MOST_LINES = 5000


class LogQuery(SnakeModel):
    """Which lines: the last ones, or those after a cursor of an earlier answer."""

    runner_id: RunnerId | None = Field(default=None, description="Of this runner's process.")
    lines: int = Field(default=200, ge=1, le=MOST_LINES)
    after: int | None = Field(default=None, ge=0, description="Cursor of an earlier answer.")
    before: AwareDatetime | None = Field(
        default=None, description="The last lines before this time, from the daemon's log file."
    )


class LogLine(CamelModel):
    at: str | None = Field(default=None, description="Null for what a runner printed.")
    level: str | None = None
    text: str = Field(description="Secrets are hidden.")


class LogLines(CamelModel):
    node_id: NodeId
    runner_id: RunnerId | None = None
    lines: list[LogLine] = Field(default_factory=list, description="Oldest first.")
    cursor: int = Field(description="Give it as `after` to get only what came later.")
    lost: int = Field(default=0, description="Lines after `after` that are no longer kept.")

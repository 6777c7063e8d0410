"""Log lines of daemons and runners, asked over the API and bounded by it."""

from __future__ import annotations

from skulkctl.client import Client, path_segment
from skulkctl.views.read import sequence, text

LINES = 200


def runner_lines(client: Client, node_id: str, runner_id: str, lines: int = LINES) -> list[str]:
    """The last lines that a runner printed. Raises CliError."""
    path = f"/v1/diagnostics/cluster/{path_segment(node_id)}/logs"
    answer = client.get(path, runner_id=runner_id, lines=str(lines))
    return [text(one, "text") or "" for one in sequence(answer, "lines")]

"""Capturing evidence and cancelling tasks, for the command line and the screens alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from skulkctl.bundles import TIMELINE, write_bundle
from skulkctl.client import Client, path_segment
from skulkctl.daemon.client import Daemon
from skulkctl.errors import CliError, UsageMistake
from skulkctl.stock_timeline import complete_timeline
from skulkctl.tui.feed import PATHS as TIMELINE_PATHS
from skulkctl.units import time_text
from skulkctl.verdict import judge
from skulkctl.verdict.ranks import Group, Rank
from skulkctl.views.read import mapping, text
from skulkd.wire.bundles import evidence, file_name, pretty_json

if TYPE_CHECKING:
    from skulkctl.contexts import Target

SAMPLE_S = 3.0
MARGIN_S = 30.0
"""What the samplers may take besides the sample itself."""


@dataclass(frozen=True)
class Bundle:
    """Where the evidence is, and which ranks are not in it."""

    path: Path
    failed: Mapping[str, str]


def capture_ranks(
    target: Target,
    group: Group,
    ranks: Sequence[Rank],
    directory: Path,
    *,
    file: Path | None = None,
    sample_s: float = SAMPLE_S,
    samples: bool = True,
) -> Bundle:
    """A bundle of these ranks, with the timeline beside it; where it was written.

    Raises CliError when no rank could be captured; a rank that could not is in the manifest.
    """
    client = Client(target, sample_s + MARGIN_S)
    with closing(Daemon(target, sample_s + MARGIN_S)) as daemon:
        timeline = complete_timeline(client, daemon, mapping(client.get_first(*TIMELINE_PATHS)))
    names = {rank.node_id: rank.node for rank in group.ranks}
    members: dict[str, bytes] = {TIMELINE: pretty_json({"timeline": timeline, "names": names})}
    verdict = judge(timeline, names=names).document()
    members["verdict.json"] = pretty_json(verdict)
    failed: dict[str, str] = {}
    for rank in ranks:
        asked = {"runnerId": rank.runner_id, "sampleDurationSeconds": sample_s}
        try:
            answer = client.change(
                "POST",
                f"/v1/diagnostics/cluster/{path_segment(rank.node_id)}/capture",
                {**asked, "includeProcessSamples": samples},
            )
        except CliError as error:
            failed[str(rank)] = "; ".join([error.what, *error.why])
            continue
        members |= evidence(mapping(answer), f"rank{rank.rank}-{rank.node}/")
    if len(failed) == len(ranks):
        raise CliError("nothing could be captured", *failed.values())
    now = datetime.now(UTC)
    path = file or directory / file_name(group.short, f"{now:%Y%m%dT%H%M%SZ}")
    about = {
        "at": time_text(now),
        "instanceId": group.instance_id,
        "modelId": group.model_id,
        "ranks": [rank.rank for rank in ranks],
        "failed": failed,
    }
    write_bundle(path, members, about)
    return Bundle(path, failed)


def cancel_everywhere(client: Client, group: Group, task_id: str) -> str:
    """Tell every rank to drop the task; what they said. Raises CliError when none took it."""
    said: list[str] = []
    refused: list[CliError] = []
    for rank in group.ranks:
        node, runner = path_segment(rank.node_id), path_segment(rank.runner_id)
        path = f"/v1/diagnostics/cluster/{node}/runners/{runner}/cancel"
        try:
            answer: Mapping[str, object] = mapping(client.change("POST", path, {"taskId": task_id}))
        except UsageMistake:
            raise
        except CliError as error:
            refused.append(error)
        else:
            said.append((text(answer, "status") or "cancel_requested").replace("_", " "))
    if not said:
        raise refused[0]
    return f"{said[0]} on {len(said)} of {len(group.ranks)} ranks"

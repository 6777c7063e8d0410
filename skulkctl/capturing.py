"""Capturing evidence and cancelling tasks, for the command line and the screens alike."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from skulkctl.bundles import TIMELINE, write_bundle
from skulkctl.client import Client, path_segment
from skulkctl.errors import CliError, UsageMistake
from skulkctl.tui.feed import PATH as TIMELINE_PATH
from skulkctl.units import time_text
from skulkctl.verdict import judge
from skulkctl.verdict.ranks import Group, Rank
from skulkctl.views.read import Document, mapping, sequence, text

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
    timeline = client.get(TIMELINE_PATH)
    names = {rank.node_id: rank.node for rank in group.ranks}
    members: dict[str, bytes] = {TIMELINE: _pretty({"timeline": timeline, "names": names})}
    verdict = judge(mapping(timeline), names=names).document()
    members["verdict.json"] = _pretty(verdict)
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
        members |= _of_rank(f"rank{rank.rank}-{rank.node}", mapping(answer))
    if len(failed) == len(ranks):
        raise CliError("nothing could be captured", *failed.values())
    now = datetime.now(UTC)
    path = file or directory / f"skulk-capture-{group.short}-{now:%Y%m%dT%H%M%SZ}.tar.zst"
    about = {
        "at": time_text(now),
        "instanceId": group.instance_id,
        "modelId": group.model_id,
        "ranks": [rank.rank for rank in ranks],
        "failed": failed,
    }
    write_bundle(path, members, about)
    return Bundle(path, failed)


def _of_rank(place: str, answer: Document) -> dict[str, bytes]:
    """One rank's part of the bundle: the answer in pieces that a person can open."""
    members = {
        f"{place}/diagnostics.json": _pretty(answer.get("nodeDiagnostics")),
        f"{place}/recorder.json": _pretty(answer.get("flightRecorder")),
        f"{place}/runner.json": _pretty(answer.get("runner")),
        f"{place}/warnings.json": _pretty(answer.get("warnings")),
    }
    for sample in sequence(answer, "processSamples"):
        name = (text(sample, "name") or "sample").replace("/", "_")
        body = text(sample, "stdout") or ""
        wrong = text(sample, "error") or text(sample, "stderr")
        if wrong:
            body += f"\n# {wrong}\n"
        members[f"{place}/{name}.txt"] = body.encode()
    return members


def _pretty(document: object) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


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

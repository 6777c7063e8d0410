"""Evidence of the ranks of an instance, and capture bundles on this machine's disk.

Gathering is described as steps, so that commands and screens share it. The form of a bundle belongs
to the contract (`skulkd.wire.bundles`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from skulkctl.daemon.calls import Steps, ask
from skulkctl.daemon.timeline import CAPTURE_MARGIN_S, capture, timeline
from skulkctl.errors import CliError, NotFound
from skulkctl.output.units import time_text
from skulkctl.verdict import assess
from skulkctl.verdict.ranks import Group, Rank
from skulkd.wire.bundles import (
    BadBundle,
    file_name,
    is_bundle,
    pack_bundle,
    pretty_json,
    unpack_bundle,
)

TIMELINE = "timeline.json"
VERDICT = "verdict.json"
SAMPLE_S = 3.0

__all__ = ["TIMELINE", "is_bundle", "read_members"]


@dataclass(frozen=True)
class Evidence:
    """What a bundle will hold, and the ranks that are missing from it, with the reason."""

    group: Group
    ranks: Sequence[Rank]
    members: Mapping[str, bytes]
    failed: Mapping[str, str]


def limit_s(sample_s: float = SAMPLE_S) -> float:
    """How long one rank may take."""
    return sample_s + CAPTURE_MARGIN_S


def gather(
    group: Group, ranks: Sequence[Rank], sample_s: float = SAMPLE_S, samples: bool = True
) -> Steps[Evidence]:
    """The evidence of these ranks, with the timeline and the verdict. Changes nothing.

    Raises CliError when no rank could be captured.
    """
    from skulkd.wire.diagnostics import DiagnosticCaptureRequest
    from skulkd.wire.ids import RunnerId

    found = yield from timeline()
    names = {rank.node_id: rank.node for rank in group.ranks}
    shown = {"timeline": found.model_dump(mode="json", exclude_unset=True), "names": names}
    members = {
        TIMELINE: pretty_json(shown),
        VERDICT: pretty_json(assess(found, names=names).document()),
    }
    failed: dict[str, str] = {}
    for rank in ranks:
        wanted = DiagnosticCaptureRequest(
            runner_id=RunnerId(rank.runner_id),
            include_process_samples=samples,
            sample_duration_seconds=sample_s,
        )
        try:
            files = yield from ask(capture(rank.node_id, wanted))
        except CliError as error:
            failed[str(rank)] = "; ".join([error.what, *error.why])
            continue
        members |= {f"rank{rank.rank}-{rank.node}/{name}": data for name, data in files.items()}
    if len(failed) == len(ranks):
        raise CliError("nothing could be captured", *failed.values())
    return Evidence(group, ranks, members, failed)


def about_of(evidence: Evidence) -> dict[str, object]:
    """What the manifest says of it."""
    return {
        "at": time_text(datetime.now(UTC)),
        "instanceId": evidence.group.instance_id,
        "modelId": evidence.group.model_id,
        "ranks": [rank.rank for rank in evidence.ranks],
        "failed": dict(evidence.failed),
    }


def write_bundle(evidence: Evidence, directory: Path, file: Path | None = None) -> Path:
    """Write the evidence to `file`, or under a name of its own to `directory`; where it is.

    The file is private: it holds logs and process listings. Raises CliError.
    """
    now = datetime.now(UTC)
    path = file or directory / file_name(evidence.group.short, f"{now:%Y%m%dT%H%M%SZ}")
    packed = pack_bundle(evidence.members, about_of(evidence))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(packed)
    except FileExistsError:
        raise CliError(f"{path} already exists", hints=["use another file:  --file FILE"]) from None
    except OSError as error:
        raise CliError(f"cannot write {path}", str(error.strerror)) from error
    return path


def open_bundle(path: Path) -> dict[str, bytes]:
    """The same for a file that somebody named. Raises NotFound and CliError."""
    try:
        with path.open("rb") as file:
            found = is_bundle(file.read(4))
    except FileNotFoundError:
        raise NotFound(f"no file {path}") from None
    except OSError as error:
        raise CliError(f"cannot read {path}", str(error.strerror)) from error
    if not found:
        raise CliError(f"{path} is not a capture bundle", hints=["skulkctl capture INSTANCE"])
    return read_members(path)


def read_members(path: Path) -> dict[str, bytes]:
    """All files of a bundle by name. Raises CliError when it is damaged or too large."""
    try:
        with path.open("rb") as file:
            return unpack_bundle(file)
    except BadBundle as error:
        raise CliError(f"{path} is damaged", str(error)) from error

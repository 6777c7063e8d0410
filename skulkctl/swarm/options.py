"""The options of `swarm setup`, by the names that the reference's own command has for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer


def _text(name: str, word: str, about: str) -> Any:
    return typer.Option(name, metavar=word, help=about, show_default=False)


def _flag(name: str, about: str) -> Any:
    return typer.Option(name, help=about, show_default=False)


def _number(name: str, about: str) -> Any:
    return typer.Option(name, metavar="N", min=1, help=about, show_default=False)


@dataclass(frozen=True)
class Setup:
    """The settings of an enrolment."""

    api_key: Annotated[
        str | None,
        _text("--api-key", "KEY", "Owner's key; visible to other users, prefer --api-key-stdin."),
    ] = None
    api_key_stdin: Annotated[bool, _flag("--api-key-stdin", "Read the owner's key from stdin.")] = (
        False
    )
    gateway: Annotated[
        str | None, _text("--gateway", "URL", "URL of the gateway (or MSWARM_GATEWAY_BASE_URL).")
    ] = None
    server_name: Annotated[
        str | None, _text("--server-name", "NAME", "Name of this node at the gateway.")
    ] = None
    mode: Annotated[
        str | None, _text("--mode", "MODE", "Connection mode; only outbound is supported.")
    ] = None
    allow: Annotated[str | None, _text("--allow", "A,B", "Offer only these models.")] = None
    block: Annotated[str | None, _text("--block", "A,B", "Never offer these models.")] = None
    expose_all: Annotated[bool, _flag("--expose-all", "Offer all models (default).")] = False
    no_expose_all: Annotated[
        bool,
        _flag(
            "--no-expose-all", "Offer only models in --allow; overrides the other exposure options."
        ),
    ] = False
    exposure_policy: Annotated[
        str | None,
        _text("--exposure-policy", "WORD", "all, or none (also: off, disabled)."),
    ] = None
    max_concurrent_jobs: Annotated[
        int | None,
        _number("--max-concurrent-jobs", "Maximum number of concurrent jobs (default: 1)."),
    ] = None
    max_concurrent_llm_jobs: Annotated[
        int | None,
        _number(
            "--max-concurrent-llm-jobs",
            "Maximum number of concurrent chat jobs (default: as many).",
        ),
    ] = None
    drain: Annotated[bool, _flag("--drain", "Start paused, without accepting jobs.")] = False
    disable_load_reporting: Annotated[
        bool, _flag("--disable-load-reporting", "Do not send load details to the gateway.")
    ] = False
    enable_hardware_telemetry: Annotated[
        bool, _flag("--enable-hardware-telemetry", "Send hardware utilization to the gateway.")
    ] = False
    enable_generic_jobs: Annotated[
        bool, _flag("--enable-generic-jobs", "Accept jobs other than chat.")
    ] = False
    job_timeout_ms: Annotated[
        int | None, _number("--job-timeout-ms", "Time limit of a job (default: 1 hour).")
    ] = None
    generic_job_timeout_ms: Annotated[
        int | None, _number("--generic-job-timeout-ms", "Time limit of a generic job.")
    ] = None
    generic_job_max_concurrency: Annotated[
        int | None,
        _number(
            "--generic-job-max-concurrency",
            "Maximum number of concurrent generic jobs (default: 1).",
        ),
    ] = None

"""The options of `swarm setup`, by the names that the reference's own command has for them."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from skulkctl.options import Options


def _text(name: str, word: str, about: str) -> Any:
    return typer.Option(name, metavar=word, help=about, show_default=False)


def _flag(name: str, about: str) -> Any:
    return typer.Option(name, help=about, show_default=False)


def _number(name: str, about: str) -> Any:
    return typer.Option(name, metavar="N", min=1, help=about, show_default=False)


def _setup(  # noqa: PLR0913, PLR0917 - one parameter per option of the reference
    api_key: Annotated[
        str | None, _text("--api-key", "KEY", "Seen by other users; better is stdin.")
    ] = None,
    api_key_stdin: Annotated[
        bool, _flag("--api-key-stdin", "Read the owner's key from stdin.")
    ] = False,
    gateway: Annotated[str | None, _text("--gateway", "URL", "Or MSWARM_GATEWAY_BASE_URL.")] = None,
    server_name: Annotated[
        str | None, _text("--server-name", "NAME", "What the gateway calls it.")
    ] = None,
    mode: Annotated[str | None, _text("--mode", "MODE", "Only outbound is offered.")] = None,
    allow: Annotated[str | None, _text("--allow", "A,B", "Offer only these models.")] = None,
    block: Annotated[str | None, _text("--block", "A,B", "Never offer these.")] = None,
    expose_all: Annotated[bool, _flag("--expose-all", "Offer all models; the default.")] = False,
    no_expose_all: Annotated[
        bool, _flag("--no-expose-all", "Offer only what --allow names; wins over the others.")
    ] = False,
    exposure_policy: Annotated[
        str | None,
        _text(
            "--exposure-policy", "WORD", "all or none (off, disabled); unknown words are refused."
        ),
    ] = None,
    max_concurrent_jobs: Annotated[
        int | None, _number("--max-concurrent-jobs", "Jobs at once; 1 if not given.")
    ] = None,
    max_concurrent_llm_jobs: Annotated[
        int | None, _number("--max-concurrent-llm-jobs", "Chat jobs at once; as many.")
    ] = None,
    drain: Annotated[bool, _flag("--drain", "Begin without taking jobs.")] = False,
    disable_load_reporting: Annotated[
        bool, _flag("--disable-load-reporting", "Tell the gateway no details of load.")
    ] = False,
    enable_hardware_telemetry: Annotated[
        bool, _flag("--enable-hardware-telemetry", "Tell how busy the machine is.")
    ] = False,
    enable_generic_jobs: Annotated[
        bool, _flag("--enable-generic-jobs", "Allow jobs that are no chat.")
    ] = False,
    job_timeout_ms: Annotated[
        int | None, _number("--job-timeout-ms", "Longest job; an hour if not given.")
    ] = None,
    generic_job_timeout_ms: Annotated[
        int | None, _number("--generic-job-timeout-ms", "The same for generic jobs.")
    ] = None,
    generic_job_max_concurrency: Annotated[
        int | None, _number("--generic-job-max-concurrency", "Generic jobs at once; 1.")
    ] = None,
) -> None:
    """What an owner decides when a node is made known."""


SETUP: Options = inspect.signature(_setup, eval_str=True).parameters

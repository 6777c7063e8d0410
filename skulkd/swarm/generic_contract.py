"""The contract of generic jobs: envelope, types, policy, paths. Pure.

Everything that is not known is refused with a code and a path, all mistakes at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from skulkd.swarm.js_values import is_number, optional_text

SCHEMA = "2026-06-14"
KNOWN_TYPES = ("render.blender", "cuda.run", "ffmpeg.cuda", "python.gpu", "package.job")
LONGEST_SEGMENT = 255
_REGISTERED = re.compile(r"(tenant|package)(\.[a-z0-9][a-z0-9-]*)+")
_KEYS = frozenset(
    [
        "schema_version",
        "job_type",
        "idempotency_key",
        "runner_hint",
        "inputs",
        "args",
        "resources",
        "limits",
        "outputs",
        "policy",
        "metadata",
    ]
)
_LLM_KEYS = frozenset(
    [
        "messages",
        "prompt",
        "model",
        "openai_request",
        "temperature",
        "top_p",
        "max_tokens",
        "stream",
        "stop",
        "tools",
        "tool_choice",
        "response_format",
    ]
)
_UNSAFE_ARGS = frozenset(
    [
        "command",
        "cmd",
        "shell",
        "image",
        "runtime",
        "network",
        "mount",
        "mounts",
        "device",
        "devices",
        "privileged",
        "hostNetwork",
        "host_network",
        "volumes",
        "binds",
    ]
)
_TRUST_MODES = frozenset({"owner-local", "tenant-owned"})
_NETWORKS = frozenset({"none", "egress-allowlist"})
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# `C:/x` leads out of its directory on Windows, and the reference refuses it everywhere.
_DRIVE = re.compile(r"[A-Za-z]:")
_POLICY_LISTS = ("allowed_images", "allowed_package_publishers")


@dataclass(frozen=True, slots=True)
class ContractIssue:
    """One mistake."""

    code: str
    path: str
    message: str
    value: Any = None

    def as_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "path": self.path,
            "message": self.message,
            "value": self.value,
        }


class UnsafePath(Exception):
    """`str()` is the reference's reason."""


def is_known_type(job_type: object) -> bool:
    return isinstance(job_type, str) and job_type in KNOWN_TYPES


def is_registered_type(job_type: object) -> bool:
    return isinstance(job_type, str) and _REGISTERED.fullmatch(job_type) is not None


def safe_relative_path(text: str) -> str:
    """The path in normal form. Raises UnsafePath for one that leads out of its directory."""
    if "\0" in text:
        raise UnsafePath("null_byte")
    if not text.strip():
        raise UnsafePath("empty_path")
    if "\\" in text:
        raise UnsafePath("backslash_not_allowed")
    if _SCHEME.match(text):
        raise UnsafePath("uri_path_not_allowed")
    if text.startswith("/") or _DRIVE.match(text):
        raise UnsafePath("absolute_path_not_allowed")
    segments = [part for part in text.split("/") if part not in {"", "."}]
    if ".." in segments:
        raise UnsafePath("parent_path_not_allowed")
    if any(len(part) > LONGEST_SEGMENT for part in segments):
        raise UnsafePath("path_segment_too_long")
    if not segments:
        raise UnsafePath("empty_path")
    return "/".join(segments)


def check_job(job: object) -> list[ContractIssue]:
    """Every mistake in a job; none means that it may be run."""
    if not isinstance(job, Mapping):
        return [ContractIssue("invalid_type", "", "the job must be an object", job)]
    return [
        *_check_keys(job),
        *_check_head(job),
        *_check_args(job.get("args")),
        *_check_policy(job.get("policy")),
        *_check_limits(job.get("limits")),
        *_check_inputs(job.get("inputs")),
        *_check_outputs(job.get("outputs")),
    ]


def _check_keys(job: Mapping[str, Any]) -> Iterator[ContractIssue]:
    for key, value in job.items():
        if key in _LLM_KEYS:
            message = f"{key} belongs to chat jobs"
            yield ContractIssue("llm_field_not_allowed", key, message, value)
        elif key not in _KEYS:
            yield ContractIssue("unknown_field", key, f"{key} is not known", value)


def _check_head(job: Mapping[str, Any]) -> Iterator[ContractIssue]:
    version = job.get("schema_version")
    if version != SCHEMA:
        yield ContractIssue(
            "invalid_schema_version", "schema_version", f"must be {SCHEMA}", version
        )
    job_type = job.get("job_type")
    if not is_known_type(job_type) and not is_registered_type(job_type):
        yield ContractIssue("invalid_job_type", "job_type", "is no type of job", job_type)


def _check_args(args: object) -> Iterator[ContractIssue]:
    if args is None:
        return
    if not isinstance(args, Mapping):
        yield ContractIssue("invalid_type", "args", "must be an object", args)
        return
    for key, value in args.items():
        if key in _UNSAFE_ARGS:
            message = f"a job may not choose its own {key}"
            yield ContractIssue("unsafe_field", f"args.{key}", message, value)


def _check_policy(policy: object) -> Iterator[ContractIssue]:
    if not isinstance(policy, Mapping):
        yield ContractIssue("required", "policy", "is required", policy)
        return
    trust = policy.get("trust_mode")
    if not _is_one_of(trust, _TRUST_MODES):
        known = ", ".join(sorted(_TRUST_MODES))
        yield ContractIssue(
            "invalid_trust_mode", "policy.trust_mode", f"must be one of {known}", trust
        )
    network = policy.get("network", "none")
    if not _is_one_of(network, _NETWORKS):
        known = ", ".join(sorted(_NETWORKS))
        yield ContractIssue("invalid_network", "policy.network", f"must be one of {known}", network)
    raw = policy.get("allow_raw_command", False)
    if raw is not False:
        yield ContractIssue("unsafe_field", "policy.allow_raw_command", "can only be false", raw)
    for key in _POLICY_LISTS:
        names = policy.get(key)
        if names is not None and not (
            isinstance(names, list) and all(optional_text(name) for name in names)
        ):
            yield ContractIssue("invalid_type", f"policy.{key}", "must be a list of names", names)
    most = policy.get("max_artifact_bytes")
    if most is not None and not _is_positive(most):
        message = "must be a number above zero"
        yield ContractIssue("invalid_limit", "policy.max_artifact_bytes", message, most)


def _is_one_of(value: object, words: frozenset[str]) -> bool:
    return isinstance(value, str) and value in words


def _check_limits(limits: object) -> Iterator[ContractIssue]:
    if limits is None:
        return
    if not isinstance(limits, Mapping):
        yield ContractIssue("invalid_type", "limits", "must be an object", limits)
        return
    for key, value in limits.items():
        if not _is_positive(value):
            yield ContractIssue(
                "invalid_limit", f"limits.{key}", "must be a number above zero", value
            )


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and is_number(value) and value > 0


def _check_inputs(inputs: object) -> Iterator[ContractIssue]:
    entries = inputs if isinstance(inputs, list) else []
    if inputs is not None and not isinstance(inputs, list):
        yield ContractIssue("invalid_type", "inputs", "must be a list", inputs)
    for index, entry in enumerate(entries):
        uri = entry.get("uri") if isinstance(entry, Mapping) else None
        if uri is not None and not str(uri).startswith("artifact://"):
            path = f"inputs[{index}].uri"
            yield ContractIssue("invalid_artifact_uri", path, "must begin with artifact://", uri)


def _check_outputs(outputs: object) -> Iterator[ContractIssue]:
    entries = outputs if isinstance(outputs, list) else []
    if outputs is not None and not isinstance(outputs, list):
        yield ContractIssue("invalid_type", "outputs", "must be a list", outputs)
    for index, entry in enumerate(entries):
        path = f"outputs[{index}].path"
        text = optional_text(entry.get("path")) if isinstance(entry, Mapping) else None
        if text is None:
            yield ContractIssue("required", path, "is required", entry)
            continue
        try:
            safe_relative_path(text)
        except UnsafePath as error:
            yield ContractIssue("unsafe_path", path, str(error), text)

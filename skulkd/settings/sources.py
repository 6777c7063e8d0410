"""Values from outside the file: environment variables and flags, as typed values with an origin.

Must not know the file or the defaults.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from skulkd.settings.convert import from_text
from skulkd.settings.problems import Problem, shown
from skulkd.settings.schema import Key, require_key

ENVIRONMENT: Mapping[str, str] = {
    "SKULK_API_LISTEN": "api.listen",
    "SKULK_API_TLS": "api.tls.enabled",
    "SKULK_API_TLS_CERTIFICATE": "api.tls.certificate",
    "SKULK_API_TLS_KEY": "api.tls.key",
    "SKULK_API_TLS_AUTHORITY": "api.tls.authority",
    "SKULK_NODE_NAME": "node.name",
    "SKULK_CLUSTER_SECRET": "cluster.secret",
    "SKULK_LIBP2P_NAMESPACE": "cluster.namespace",
    "SKULK_FABRIC_LISTEN": "cluster.listen",
    "SKULK_BOOTSTRAP_PEERS": "cluster.peers",
    "SKULK_KV_CACHE_BACKEND": "inference.kv_cache_backend",
    "SKULK_MAX_CONCURRENT_REQUESTS": "runtime.max_concurrent_requests",
    "SKULK_MAX_TOKENS": "runtime.max_output_tokens",
    "SKULK_MAX_OUTPUT_TOKENS": "runtime.max_output_tokens",
    "SKULK_WARMUP_DEADLINE_SECONDS": "runtime.warmup_deadline_seconds",
    "SKULK_GROUP_CONNECT_DEADLINE_SECONDS": "runtime.group_connect_deadline_seconds",
    "SKULK_TRACING_ENABLED": "tracing.enabled",
    "SKULK_LOGGING_INGEST_URL": "logging.ingest_url",
    "SKULK_LOGGING_EXTERNAL": "logging.enabled",
    "HF_TOKEN": "hf_token",
}
"""Variable to key; of two for one key the later counts. One that is set but empty is not set."""

FLAGS: Mapping[str, str] = {
    "api.listen": "--listen",
    "api.tls.enabled": "--tls",
    "node.name": "--name",
    "cluster.listen": "--fabric-listen",
    "cluster.peers": "--peer",
}
"""Key to flag, for messages; a key that is not here is called by its own name."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Who decided a value. `text` is the flag, the variable, `file:line`, or `default`."""

    kind: Literal["flag", "env", "file", "default"]
    text: str


@dataclass(frozen=True, slots=True)
class Given:
    """A value from outside the file."""

    path: tuple[str, ...]
    value: object
    origin: Origin


def from_environment(environ: Mapping[str, str], problems: list[Problem]) -> Iterator[Given]:
    """What the environment sets. A text of the wrong type is added to `problems`."""
    for variable, name in ENVIRONMENT.items():
        text = environ.get(variable)
        if text:
            yield from _given(name, text, Origin("env", variable), problems)


def from_flags(flags: Mapping[str, object], problems: list[Problem]) -> Iterator[Given]:
    """What the flags set, by dotted key; None is a flag that was not given."""
    for name, value in flags.items():
        if value is not None:
            yield from _given(name, value, Origin("flag", FLAGS.get(name, name)), problems)


def _given(name: str, value: object, origin: Origin, problems: list[Problem]) -> Iterator[Given]:
    path, key = require_key(name)
    if isinstance(value, str) and isinstance(key, Key):
        try:
            value = from_text(key, value)
        except ValueError as error:
            text = None if key.secret else shown(value)
            problems.append(Problem(str(error), key=name, value=text, source=origin.text))
            return
    yield Given(path, value, origin)

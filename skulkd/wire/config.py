"""The schema of `skulk.yaml`: sections, defaults and the rules for single values.

snake_case, strict, unknown keys refused. Must not know where a value came from: see
`skulkd.settings`.
"""

import ipaddress
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from skulkd.wire.config_urls import check_http_url, check_origin
from skulkd.wire.durations import KeepAlive

KvCacheBackend = Literal["default", "mlx_quantized", "turboquant", "turboquant_adaptive", "optiq"]

MIN_SECRET_LENGTH = 16
MAX_SECRET_LENGTH = 1024

_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?")
_VISIBLE_ASCII = re.compile(r"[!-~]+")


def _one_line(value: str) -> str:
    if any(ord(ch) < 0x20 or 0x7F <= ord(ch) < 0xA0 for ch in value):
        raise ValueError("must not contain control characters")
    if any(0xD800 <= ord(ch) < 0xE000 for ch in value):
        raise ValueError("must be valid Unicode text")
    return value


def _filled(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def _no_slashes(value: str) -> str:
    if "/" in value or "\\" in value:
        raise ValueError("must not contain slashes")
    if value != value.strip():
        raise ValueError("must not begin or end with a space")
    return value


def _header_safe(value: str) -> str:
    # Secrets travel in an HTTP header, which carries neither spaces nor other alphabets.
    if not _VISIBLE_ASCII.fullmatch(value):
        raise ValueError("must be visible ASCII characters without spaces")
    return value


def check_secret(value: str) -> str:
    """Return a cluster secret that is fit for use, or raise ValueError saying why it is not."""
    if len(value) < MIN_SECRET_LENGTH:
        raise ValueError(f"must have at least {MIN_SECRET_LENGTH} characters, has {len(value)}")
    if len(value) > MAX_SECRET_LENGTH:
        raise ValueError(f"must have at most {MAX_SECRET_LENGTH} characters")
    return _header_safe(value)


def parse_listen(value: str) -> tuple[str, int]:
    """Split "HOST:PORT" or "[IPv6]:PORT" into host and port (0 = any free port).

    Raises ValueError when the text cannot be an address to listen on.
    """
    host, colon, port = value.rpartition(":")
    if not colon:
        raise ValueError("must be HOST:PORT, for example 127.0.0.1:52415")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ValueError("must end in a port from 0 to 65535, for example 127.0.0.1:52415")
    if not host:
        raise ValueError(f"must name a host; 0.0.0.0:{port} listens on every interface")
    if host.startswith("[") and host.endswith("]"):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise ValueError("must hold an IPv6 address between the brackets") from None
        return host[1:-1], int(port)
    if ":" in host:
        raise ValueError("must write an IPv6 address in brackets, for example [::1]:52415")
    if not _is_host(host):
        raise ValueError("must begin with an IP address or a host name")
    return host, int(port)


def _is_host(host: str) -> bool:
    # Digits and dots only is an IPv4 address or a typing error, never a name.
    if re.fullmatch(r"[0-9.]+", host):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            return False
        return True
    return len(host) <= 253 and _HOST_NAME.fullmatch(host) is not None


def _listen(value: str) -> str:
    parse_listen(value)
    return value


_MULTIADDR = re.compile(r"/(?:ip4|ip6|dns|dns4|dns6)/([^/]+)/tcp/(\d{1,5})(?:/p2p/[^/]+)?")


def _peer(value: str) -> str:
    # The reference writes peers as multiaddrs; both spellings mean the same.
    if (match := _MULTIADDR.fullmatch(value)) is not None:
        host = f"[{match[1]}]" if ":" in match[1] else match[1]
        value = f"{host}:{match[2]}"
    if parse_listen(value)[1] == 0:
        raise ValueError("must end in the port of a peer, for example 192.168.1.6:52416")
    return value


def _null_is_empty(value: Any) -> Any:
    return {} if value is None else value


def _false_is_off(value: Any) -> Any:
    # YAML reads a bare `off` as false.
    return "off" if value is False else value


def _number_is_version(value: Any) -> Any:
    # YAML reads a bare 1.3 as a number.
    return str(value) if isinstance(value, float) else value


def _true_is_on(value: Any) -> Any:
    return "on" if value is True else value


def _blas(value: str) -> str:
    if value in ("auto", "bundled", "system", "off") or value.startswith("/"):
        return value
    raise ValueError("must be auto, bundled, system, off, or a library's absolute path")


Text = Annotated[str, AfterValidator(_one_line)]
FilledText = Annotated[Text, AfterValidator(_filled)]
Name = Annotated[FilledText, AfterValidator(_no_slashes)]
Secret = Annotated[FilledText, AfterValidator(_header_safe)]
ClusterSecretText = Annotated[FilledText, AfterValidator(check_secret)]
Listen = Annotated[FilledText, AfterValidator(_listen)]
Peer = Annotated[FilledText, AfterValidator(_peer)]
WebOrigin = Annotated[FilledText, AfterValidator(check_origin)]
Blas = Annotated[FilledText, BeforeValidator(_false_is_off), AfterValidator(_blas)]
Dequantize = Annotated[
    Literal["auto", "on", "off"], BeforeValidator(_true_is_on), BeforeValidator(_false_is_off)
]
HttpUrl = Annotated[Text, AfterValidator(check_http_url)]


class ConfigSection(BaseModel):
    """Base of every section: strict types, no unknown keys, no changes after the check."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, hide_input_in_errors=True, validate_default=False
    )


class NodeSection(ConfigSection):
    name: Name | None = Field(
        default=None, description="Friendly name of this node; null = the host name"
    )


class ApiTlsSection(ConfigSection):
    """HTTPS for the API. A file that is not named is that of `cluster.tls`."""

    enabled: bool = Field(default=True, description="Serve the API over HTTPS only")
    certificate: FilledText | None = Field(
        default=None, description="PEM file of the API's certificate; null = that of cluster.tls"
    )
    key: FilledText | None = Field(
        default=None, description="PEM file of its private key; null = that of cluster.tls"
    )
    authority: FilledText | None = Field(
        default=None,
        description="PEM file of the authority that signed it; null = that of cluster.tls, if the "
        "certificate is, else the system's authorities",
    )
    minimum_version: Annotated[Literal["1.2", "1.3"], BeforeValidator(_number_is_version)] = Field(
        default="1.2", description="Oldest version of TLS that is accepted"
    )
    names: list[Name] = Field(
        default=[],
        description="Other names by which clients reach this node, besides its own",
    )


class ApiSection(ConfigSection):
    listen: Listen = Field(
        default="127.0.0.1:52415", description="HOST:PORT of the HTTP API; port 0 = any"
    )
    token_on_loopback: bool = Field(
        default=False, description="Ask for a token from this machine too"
    )
    secret_for_operators: bool = Field(
        default=True,
        description="Accept the cluster secret as a token; false = access tokens only",
    )
    cors_origins: list[WebOrigin] = Field(
        default=[], description="Web origins that may call the API"
    )
    max_body_mib: int = Field(default=8, ge=1, le=1024, description="Largest request body, in MiB")
    tls: ApiTlsSection | None = Field(default=None, description="Serve the API over HTTPS")


class TlsSection(ConfigSection):
    """Both sides of every link show a certificate that this authority signed."""

    certificate: FilledText = Field(description="PEM file of this node's certificate")
    key: FilledText = Field(description="PEM file of this node's private key")
    authority: FilledText = Field(description="PEM file of the authority that signed all nodes'")


class ClusterSection(ConfigSection):
    secret: ClusterSecretText | None = Field(
        default=None, repr=False, description="Cluster secret; null = the file made on first start"
    )
    namespace: Name | None = Field(
        default=None, description="Only nodes with the same namespace meet"
    )
    listen: Listen | None = Field(
        default=None,
        description="HOST:PORT for other nodes; null = port 52416 of the API's host; port 0 = any",
    )
    peers: list[Peer] = Field(default=[], description="HOST:PORT of nodes to call at start")
    multicast: bool = Field(
        default=True, description="Find nodes on the local network; never on loopback"
    )
    on_node_loss: Literal["replace", "delete"] = Field(
        default="replace", description="What happens to an instance that lost a node"
    )
    tls: TlsSection | None = Field(default=None, description="Encrypt links between nodes")


class DownloadSection(ConfigSection):
    allow_hf_fallback: bool = Field(
        default=True, description="The store host may fetch missing models from Hugging Face"
    )


class StagingSection(ConfigSection):
    enabled: bool = Field(
        default=True, description="Copy models from the store to a local directory"
    )
    node_cache_path: FilledText = Field(
        default="~/.skulk/staging", description="Where local copies live"
    )
    cleanup_on_deactivate: bool = Field(
        default=True, description="Evict when an instance is deactivated"
    )
    # The upper bound keeps the byte count finite; it is an exbibyte.
    staging_keep_recent_gb: float = Field(
        default=40.0,
        ge=0,
        le=2**30,
        allow_inf_nan=False,
        description="GiB of recent copies to keep",
    )


class NodeOverride(ConfigSection):
    staging: StagingSection | None = Field(
        default=None, description="Staging keys that differ here"
    )


class ModelStoreSection(ConfigSection):
    enabled: bool = Field(default=True, description="Master switch of the model store")
    store_host: FilledText = Field(description="Host name, node name or node id of the store host")
    store_http_host: FilledText | None = Field(
        default=None, description="Host used in store URLs; null = store_host"
    )
    store_port: int = Field(default=58080, ge=1, le=65535, description="Port of the store server")
    store_path: FilledText = Field(description="Root of the store on its host")
    download: DownloadSection = DownloadSection()
    staging: StagingSection = StagingSection()
    node_overrides: dict[Name, NodeOverride] = Field(
        default={}, description="Staging settings per host name, node name or node id"
    )


class InferenceSection(ConfigSection):
    kv_cache_backend: KvCacheBackend = Field(
        default="default", description="KV cache implementation"
    )


class RuntimeSection(ConfigSection):
    """How runners serve. Ours; the reference has environment variables for some of it."""

    blas: Blas = Field(
        default="auto",
        description="What multiplies matrices on a Linux CPU: auto or bundled (OpenBLAS of the"
        " [node] extra), system (OpenBLAS or MKL that the loader finds), a library's path, or off"
        " (MLX's own)",
    )
    dequantize: Dequantize = Field(
        default="auto",
        description="Unpack 4-bit, 8-bit and 16-bit weights to float32 on a CPU: auto (when they"
        " fit with a full context), on (when they fit; the context may become shorter) or off",
    )
    cores: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="Cores that a runner computes with on a CPU; 0 = all it may use, 8 at most",
    )
    max_concurrent_requests: int = Field(
        default=8, ge=1, le=1024, description="Requests that one instance decodes together"
    )
    queue: int = Field(
        default=128, ge=0, le=100_000, description="Requests that may wait for an instance"
    )
    max_output_tokens: int = Field(
        default=4096, ge=1, le=2**31, description="Longest answer when a request sets no limit"
    )
    prefix_cache_mib: int = Field(
        default=1024, ge=0, le=2**20, description="Memory for prompts seen before; 0 = off"
    )
    prefix_routing: bool = Field(
        default=True,
        description="Of several instances of a model, prefer the one that has read the beginning"
        " of a prompt before; false = always the one with the fewest requests",
    )
    warmup_deadline_seconds: float = Field(
        default=300.0, gt=0, le=86_400, description="Longest warm-up before a runner is given up"
    )
    group_connect_deadline_seconds: float = Field(
        default=120.0, gt=0, le=86_400, description="Longest time for all ranks to connect"
    )


class ModelsSection(ConfigSection):
    """Models that requests load. Ours."""

    on_demand: bool = Field(
        default=False, description="Place a known model when a request needs it"
    )
    idle_ttl: KeepAlive = Field(
        default="5m",
        description="Unload a model that was placed on demand after so long without work, such as"
        " 5m; -1 = only when memory is short",
    )


class SwarmSection(ConfigSection):
    """The mswarm gateway node. Ours; what belongs to one enrolment is in that node's own files."""

    generic_runners: list[Literal["test.echo"]] = Field(
        default=[], description="Kinds of generic work that jobs may ask for; none by default"
    )


class LoggingSection(ConfigSection):
    enabled: bool = Field(default=False, description="Write JSON log lines to stdout")
    ingest_url: HttpUrl = Field(default="", description="Where log lines are shipped to")
    file: bool = Field(default=True, description="Keep JSON log lines in skulk.log; ours")
    file_mib: int = Field(
        default=16, ge=1, le=4096, description="Size at which skulk.log makes room, in MiB"
    )
    files: int = Field(default=5, ge=1, le=100, description="skulk.log and its older parts")


class TracingSection(ConfigSection):
    enabled: bool = Field(default=False, description="Record traces from the start")
    # The upper bound keeps date arithmetic possible.
    retention_days: int = Field(
        default=3, le=36500, description="Days to keep trace files; 0 or less = forever"
    )


class EventLogSection(ConfigSection):
    """The event log on disk. Ours; the sizes are the reference's."""

    enabled: bool = Field(default=True, description="Keep events on disk, not only in memory")
    ring_mib: int = Field(
        default=256, ge=1, le=2**20, description="Size at which old events are dropped, in MiB"
    )
    keep_events: int = Field(
        default=20_000, ge=1, le=10_000_000, description="Newest events that are kept then"
    )
    archives: int = Field(default=5, ge=0, le=1000, description="Logs of earlier starts to keep")
    archives_mib: int = Field(
        default=1024, ge=0, le=2**20, description="Most that archives may take, in MiB"
    )
    floor_mib: int = Field(
        default=2048, ge=0, le=2**20, description="Free space below which events are only counted"
    )


class TailscaleSection(ConfigSection):
    enabled: bool = Field(default=True, description="Find peers over Tailscale")
    bootstrap_peers: list[FilledText] = Field(default=[], description="Peers to call at start")


class ConnectivitySection(ConfigSection):
    tailscale: TailscaleSection = TailscaleSection()


class SkulkConfig(ConfigSection):
    """The whole file. A null or absent section means its defaults; two sections mean "off"."""

    node: Annotated[NodeSection, BeforeValidator(_null_is_empty)] = NodeSection()
    api: Annotated[ApiSection, BeforeValidator(_null_is_empty)] = ApiSection()
    cluster: Annotated[ClusterSection, BeforeValidator(_null_is_empty)] = ClusterSection()
    model_store: ModelStoreSection | None = None
    inference: Annotated[InferenceSection, BeforeValidator(_null_is_empty)] = InferenceSection()
    runtime: Annotated[RuntimeSection, BeforeValidator(_null_is_empty)] = RuntimeSection()
    models: Annotated[ModelsSection, BeforeValidator(_null_is_empty)] = ModelsSection()
    logging: Annotated[LoggingSection, BeforeValidator(_null_is_empty)] = LoggingSection()
    tracing: Annotated[TracingSection, BeforeValidator(_null_is_empty)] = TracingSection()
    event_log: Annotated[EventLogSection, BeforeValidator(_null_is_empty)] = EventLogSection()
    swarm: Annotated[SwarmSection, BeforeValidator(_null_is_empty)] = SwarmSection()
    connectivity: ConnectivitySection | None = None
    hf_token: Secret | None = Field(
        default=None, repr=False, description="Hugging Face access token"
    )

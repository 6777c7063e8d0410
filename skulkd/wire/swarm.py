"""Answers and bodies of `/v1/swarm…`: the gateway node of one daemon. No secret is ever in one."""

from typing import Any, Literal

from pydantic import Field

from skulkd.wire.base import CamelModel, SnakeModel

SETUP_OPTIONS = (
    "gateway",
    "server-name",
    "mode",
    "allow",
    "block",
    "expose-all",
    "no-expose-all",
    "exposure-policy",
    "max-concurrent-jobs",
    "max-concurrent-llm-jobs",
    "drain",
    "disable-load-reporting",
    "enable-hardware-telemetry",
    "enable-generic-jobs",
    "job-timeout-ms",
    "generic-job-timeout-ms",
    "generic-job-max-concurrency",
)
"""By the names the reference's command line has for them."""


class SwarmSetup(CamelModel):
    """An owner's key, used once and not kept."""

    api_key: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        repr=False,
        description="Null = MSWARM_API_KEY of the daemon's environment.",
    )
    options: dict[str, str | int | bool] = Field(
        default_factory=dict, description="By the names of the reference's options."
    )
    dry_run: bool = Field(
        default=False, description="Check everything and report the plan; nothing is sent."
    )


class SwarmEnroll(CamelModel):
    """A node id and the one-time token that goes with it."""

    node_id: str = Field(min_length=1, max_length=256)
    enrollment_token: str = Field(min_length=1, max_length=4096, repr=False)
    options: dict[str, str | int | bool] = Field(default_factory=dict)
    dry_run: bool = Field(
        default=False, description="Check everything and report the plan; nothing is sent."
    )


class SwarmLeave(CamelModel):
    force: bool = Field(default=False, description="Also when work would be lost.")


class RefusedResult(SnakeModel):
    """A result that the gateway refused for good; it is not sent again."""

    job_id: str
    status: int = Field(description="HTTP status: 404, 410 or 422.")
    at: str
    message: str


class SwarmStatus(SnakeModel):
    """How the gateway node stands; the names are the gateway's."""

    configured: bool
    node_id: str | None = None
    server_name: str | None = None
    gateway_base_url: str | None = None
    relay_mode: Literal["outbound", "direct"] | None = None
    state: str | None = Field(
        default=None,
        description=(
            "polling, busy, draining, paused, backing off, retired, starting, restarting,"
            " stopping, stopped or no token."
        ),
    )
    last_heartbeat_at: str | None = None
    heartbeat_error: str | None = None
    poll_error: str | None = None
    session_restarts: int = Field(
        default=0, description="How often the session failed unexpectedly and was started again."
    )
    session_error: str | None = Field(default=None, description="Of the last such failure.")
    session_error_at: str | None = None
    running_jobs: dict[str, str] = Field(
        default_factory=dict, description="Job id to agent or model."
    )
    jobs_done: int = 0
    jobs_failed: int = 0
    owed_results: int = Field(default=0, description="Results that the gateway has not taken yet.")
    refused_results: list[RefusedResult] = Field(
        default_factory=list, description="Given up, newest last; the last 32 are kept."
    )
    expose_all_models: bool | None = Field(
        default=None, description="Whether models outside of the allow list are offered."
    )
    max_concurrent_jobs: int | None = None
    max_concurrent_llm_jobs: int | None = None
    generic_jobs_enabled: bool = False
    hardware_telemetry_enabled: bool = False
    load_reporting_enabled: bool = True
    models: list[str] = Field(default_factory=list, description="Slugs of the models on offer.")
    problems: list[str] = Field(default_factory=list)


class ClassCapacity(SnakeModel):
    """Room for one class of work."""

    max_concurrency: int
    active_jobs: int
    queued_jobs: int
    free_slots: int


class Capacity(SnakeModel):
    """How much work the node has and can take; the names are the gateway's."""

    runtime_protocol_version: int
    load_balancer_protocol_version: int
    catalog_metadata_version: int
    catalog_fingerprint: str
    max_concurrency: int
    max_concurrent_llm_jobs: int
    max_concurrent_generic_jobs: int
    active_jobs: int
    queued_jobs: int
    free_slots: int
    drain_mode: bool
    execution_class_capacity: dict[str, ClassCapacity]
    avg_latency_ms: int | None = None
    recent_failure_count: int
    recent_failures: list[dict[str, Any]]
    hardware_pressure: dict[str, Any] | None = None


class Heartbeat(SnakeModel):
    """What one heartbeat came to, as the reference's `once` prints it."""

    enrolled: bool = Field(description="Whether it was enrolled for this heartbeat.")
    status: str
    model_count: int
    discovery_source: str
    mcoda_agent_count: int
    ollama_version: str | None = None
    capacity: Capacity
    heartbeat_response: dict[str, Any] = Field(description="The gateway's answer.")


class HeartbeatReport(SnakeModel):
    """Answer of `POST /v1/swarm/run-once`, and of a set-up."""

    report: Heartbeat


class SetupPlan(SnakeModel):
    """What a set-up would do."""

    dry_run: Literal[True]
    gateway_base_url: str
    server_name: str
    expose_all_models: bool
    model_allowlist: list[str]
    model_blocklist: list[str]
    max_concurrent_jobs: int
    max_concurrent_llm_jobs: int
    generic_jobs_enabled: bool
    hardware_telemetry_enabled: bool
    load_reporting_enabled: bool


class SetupPlanReport(SnakeModel):
    """Answer of a set-up or enrolment that was a dry run."""

    report: SetupPlan


class Enrolment(SnakeModel):
    enrolled: bool
    node_id: str
    state_path: str


class EnrolmentReport(SnakeModel):
    """Answer of `POST /v1/swarm/enroll`."""

    report: Enrolment


class GatewayNotification(SnakeModel):
    """Whether the gateway was told, and what it said or why not."""

    notified: bool
    error: str | None = None
    response: dict[str, Any] | None = None


class Leave(SnakeModel):
    left: bool
    node_id: str | None = None
    gateway_notification: GatewayNotification


class LeaveReport(SnakeModel):
    """Answer of `POST /v1/swarm/leave`."""

    report: Leave


class GenericResult(SnakeModel):
    """What a generic job came to, in the reference's shape."""

    job_id: str
    request_id: str | None = None
    status: str
    result: dict[str, Any]
    events: list[dict[str, Any]]
    validation_issues: list[dict[str, Any]] = Field(default_factory=list)
    timing: dict[str, Any]


class GenericCancelled(SnakeModel):
    """A generic job that was ended."""

    job_id: str
    status: str


class GenericCancel(SnakeModel):
    """Which generic job to end."""

    job_id: str = Field(min_length=1, max_length=256)
    request_id: str = Field(min_length=1, max_length=256)
    node_id: str = Field(min_length=1, max_length=256)


class GenericEnvelope(SnakeModel):
    """A generic job; `job` is checked by its own contract, every mistake at once."""

    job_id: str = Field(min_length=1, max_length=256)
    request_id: str = Field(min_length=1, max_length=256)
    node_id: str = Field(min_length=1, max_length=256)
    job: dict[str, Any]

"""Errors of the gateway node, and how the error of a job is told to the gateway."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

REDACTED = "[redacted]"
JOB_CODES = frozenset(
    {
        "selected_agent_unavailable",
        "selected_agent_unhealthy",
        "validation_failed",
        "docdex_context_missing",
        "docdex_api_key_missing",
        "docdex_operation_not_allowed",
        "docdex_auth_failed",
        "docdex_repo_access_denied",
        "docdex_unavailable",
    }
)
"""Codes that an error may carry itself; all others follow from its text."""
_SHORTEST_SECRET = 4
# `key: value`, `key=value` and `"key":"value"`, the latter also inside of another JSON text,
# where its quotes are escaped. A quoted value ends with its quote.
_KEYED = re.compile(
    r"((?:x-api-key|authorization|api[_-]?key|token|secret)(?:\\*[\"'])?\s*[:=]\s*)"
    r"(?:(?P<quote>\\*[\"'])(?:(?!(?P=quote))(?:\\.|.))*(?P<end>(?P=quote))?"
    r"|(?:Bearer\s+)?[^\s,;}]+)",
    re.IGNORECASE | re.DOTALL,
)
_CODE_PATTERNS = (
    (re.compile("timeout", re.IGNORECASE), "timeout"),
    (re.compile("not exposed|validation|required|empty", re.IGNORECASE), "validation_failed"),
    (re.compile("permission|policy|denied", re.IGNORECASE), "policy_denied"),
)
log = logging.getLogger(__name__)


class GatewayError(Exception):
    """A call failed. `status` is None when there was no usable HTTP response."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ConfigError(Exception):
    """Settings or stored files cannot be used; `str()` says why."""


class NotEnrolled(Exception):
    """There is no enrolment to work with."""


class Busy(Exception):
    """Leaving now would lose work."""


class JobError(Exception):
    """A job cannot be run, for a reason that has a code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def as_gateway_error(error: Exception, operation: str) -> GatewayError:
    """Unexpected errors are treated like those of the gateway, and logged in full."""
    if isinstance(error, GatewayError):
        return error
    log.error("%s failed unexpectedly", operation, exc_info=error)
    return GatewayError(f"{operation} failed: {type(error).__name__}: {error}"[:200])


def redact(message: str, secrets: Iterable[str | None] = ()) -> str:
    """Known secrets, then whatever follows a word that announces one."""
    for secret in secrets:
        if secret and len(secret) >= _SHORTEST_SECRET:
            message = message.replace(secret, REDACTED)
    return _KEYED.sub(_redacted, message)


def _redacted(match: re.Match[str]) -> str:
    return f"{match[1]}{match['quote'] or ''}{REDACTED}{match['end'] or ''}"


def code_from_message(message: str) -> str:
    """The code of a failure by its redacted text, as the reference finds it: the first match."""
    return next((code for word, code in _CODE_PATTERNS if word.search(message)), "upstream_error")


def explicit_code(code: object) -> str | None:
    """A code that an error may carry itself."""
    return code if isinstance(code, str) and code in JOB_CODES else None

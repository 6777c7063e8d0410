"""Errors of the gateway node, by whose fault they are."""

from __future__ import annotations

import logging

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


def as_gateway_error(error: Exception, what: str) -> GatewayError:
    """Errors that nobody expected are treated like those of the gateway, and logged in full."""
    if isinstance(error, GatewayError):
        return error
    log.error("%s failed unexpectedly", what, exc_info=error)
    return GatewayError(f"{what} failed: {type(error).__name__}: {error}"[:200])

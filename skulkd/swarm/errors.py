"""Errors of the gateway node, by whose fault they are."""

from __future__ import annotations


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

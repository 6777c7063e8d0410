"""Error bodies of the API: envelope, OpenAI's, schema failure, and the router's bare detail."""

from typing import Any

from pydantic import Field

from skulkd.wire.base import SnakeModel


class ErrorBody(SnakeModel):
    message: str
    type: str = Field(description="HTTP reason phrase, or a failure kind after generation began.")
    param: str | None = None
    code: int = Field(description="HTTP status.")
    refusal: dict[str, Any] | None = Field(
        default=None,
        exclude_if=lambda told: told is None,
        description="Kind and data of a refused placement, with hints.",
    )


class ErrorEnvelope(SnakeModel):
    """Body of every deliberate error."""

    error: ErrorBody


class OpenAiErrorBody(SnakeModel):
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str = Field(description="For programs, such as `unknown_url` or `model_not_found`.")


class OpenAiErrorEnvelope(SnakeModel):
    """Body of a 404 under `/v1/` that the reference does not define; as OpenAI's API has it."""

    error: OpenAiErrorBody


class ValidationErrorItem(SnakeModel):
    """One place where a body or a query did not match its schema."""

    type: str
    loc: list[str | int]
    msg: str
    input: Any = None
    ctx: dict[str, Any] = Field(default_factory=dict)


class HTTPValidationError(SnakeModel):
    """Body of 422."""

    detail: list[ValidationErrorItem] = Field(default_factory=list)


class DetailError(SnakeModel):
    """Body of 404 and 405 for a path (outside `/v1/`) or a method that does not exist."""

    detail: str

"""Access tokens: what one may do, how often, and until when. The token itself is never here."""

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    GetJsonSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema

from skulkd.wire.base import CamelModel, UtcTime
from skulkd.wire.ids import TokenId
from skulkd.wire.instances import WHOLE

Scope = Literal["read", "infer", "operate"]
SCOPES: tuple[Scope, ...] = ("read", "infer", "operate")
NAME_LIMIT = 64
MAX_CONCURRENCY = 10_000
MAX_EXPIRES_S = 10 * 366 * 86_400
UNITS_S = {"s": 1, "min": 60, "h": 3600}

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_LIMIT - 1}}}")
_RATE = re.compile(r"([1-9][0-9]{0,5})/(s|min|h)")


def parse_rate(text: str) -> tuple[int, int]:
    """`60/min` as requests and seconds. Raises ValueError."""
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError("must be N/s, N/min or N/h with N from 1 to 999999, such as 60/min")
    return int(match[1]), UNITS_S[match[2]]


def _rate(text: str) -> str:
    parse_rate(text)
    return text


def check_token_name(name: str) -> str:
    """Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"must be 1 to {NAME_LIMIT} letters, digits, dots, dashes or underscores, "
            "and begin with a letter or digit"
        )
    return name


def _scopes(scopes: list[Scope]) -> list[Scope]:
    return [scope for scope in SCOPES if scope in scopes]


def _text_like(pattern: re.Pattern[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern.pattern}$"})


Rate = Annotated[str, AfterValidator(_rate), _text_like(_RATE)]
TokenName = Annotated[str, AfterValidator(check_token_name), _text_like(_NAME)]
Scopes = Annotated[list[Scope], Field(min_length=1), AfterValidator(_scopes)]
Concurrency = Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)]


class TokenFacts(CamelModel):
    """What everybody who may list tokens can see."""

    token_id: TokenId
    name: str
    scopes: list[Scope]
    rate: str | None = Field(default=None, description="Requests, as 60/min, for each node.")
    concurrency: int | None = Field(
        default=None, description="Requests open at once, for each node."
    )
    created: UtcTime
    expires: UtcTime | None = None


class AccessToken(TokenFacts):
    """A token as the nodes keep it. Its digest is written for other nodes and the disk only."""

    digest: SkipJsonSchema[str] = Field(default="", exclude=True, repr=False)

    @model_serializer(mode="wrap")
    def _keep_digest(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        body: dict[str, Any] = handler(self)
        if info.context == WHOLE:
            body["digest"] = self.digest
        return body

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        # The serializer's return type says only "object"; without it the fields are described.
        fields_only: Any = {key: value for key, value in schema.items() if key != "serialization"}
        return handler.resolve_ref_schema(handler(fields_only))


class CreateTokenRequest(CamelModel):
    name: TokenName
    scopes: Scopes
    rate: Rate | None = None
    concurrency: Concurrency | None = None
    expires_in_s: float | None = Field(default=None, gt=0, le=MAX_EXPIRES_S)


class CreatedToken(TokenFacts):
    """Answer of `POST /v1/cluster/tokens`; the only time that the token is shown."""

    token: str


class TokenItem(TokenFacts):
    expired: bool = False
    last_used: UtcTime | None = Field(
        default=None, description="Since the daemons started, on the nodes that answered."
    )


class TokenList(CamelModel):
    """Answer of `GET /v1/cluster/tokens`."""

    tokens: list[TokenItem] = Field(description="By name.")
    unreachable_nodes: list[str] = Field(
        default_factory=list, description="Nodes whose last uses are not included."
    )


class RevokedToken(CamelModel):
    """Answer of `DELETE /v1/cluster/tokens/{token}`."""

    token_id: TokenId
    name: str

"""Who sent the request that is being handled, and what its token allows. Pure but for `CALLER`."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from skulkd.api.errors import ApiError
from skulkd.wire.tokens import AccessToken, Scope

Need = Literal["anyone", "any", "read", "infer", "operate"]
"""What a route asks for: no authentication, any token, or a scope."""

SCOPE_MISSING = "scope_missing"


@dataclass(frozen=True, slots=True)
class Caller:
    """A token, or somebody who may do everything."""

    kind: Literal["anyone", "local", "cluster secret", "token"]
    token: AccessToken | None = None

    @property
    def who(self) -> str:
        return self.kind if self.token is None else f"token {self.token.name}"


ANYONE = Caller("anyone")
LOCAL = Caller("local")
CLUSTER_SECRET = Caller("cluster secret")

CALLER: ContextVar[Caller] = ContextVar("caller", default=LOCAL)
"""Set by the entry for every request. Work that no request caused is local."""


def allows(scopes: list[Scope], need: Need) -> bool:
    """`operate` includes the others; `read` and `infer` do not include each other."""
    return need in ("anyone", "any") or need in scopes or "operate" in scopes


def check_scope(token: AccessToken, need: Need) -> None:
    """Raises ApiError 403, which names the scope."""
    if allows(token.scopes, need):
        return
    has = ", ".join(token.scopes)
    raise ApiError(
        403,
        f"token {token.name} lacks the scope {need} (it has {has})",
        refusal={
            "kind": SCOPE_MISSING,
            "scope": need,
            "scopes": list(token.scopes),
            "token": token.name,
            "hints": [f"use a token that has it: skulkctl token create NAME --scope {need}"],
        },
    )

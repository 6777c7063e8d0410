"""Creating, listing and revoking access tokens: decided by the master, in force on every node.

A token is made on the node that was asked; the others only ever see its digest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from skulkd.api.errors import ApiError
from skulkd.api.lost_nodes import COMMAND_STATUS, Send, no_master
from skulkd.api.peer_calls import answer_peers
from skulkd.api.token_text import digest_of, new_token
from skulkd.api.token_uses import TokenUses
from skulkd.cluster.commits import Decision
from skulkd.cluster.tokens import TOKENS, TokenTable
from skulkd.peers import PeerRefused, Peers, ask_others
from skulkd.wire.events import TokenCreated, TokenRevoked
from skulkd.wire.ids import NodeId, TokenId
from skulkd.wire.instances import WHOLE
from skulkd.wire.tokens import (
    AccessToken,
    CreatedToken,
    CreateTokenRequest,
    RevokedToken,
    TokenItem,
    TokenList,
)

CREATE, REVOKE = "token.create", "token.revoke"
USED = "tokens.used"
DEADLINE_S = 9.0
USED_DEADLINE_S = 2.0

NAME_TAKEN, TOO_MANY = "token_name_taken", "too_many_tokens"
UNKNOWN, AMBIGUOUS = "unknown_token", "ambiguous_token"
_STATUS = {
    NAME_TAKEN: 409,
    TOO_MANY: 409,
    AMBIGUOUS: 409,
    UNKNOWN: 404,
    **COMMAND_STATUS,
}


class Tokens:
    """What handlers use; a node without a cluster has no tokens and cannot make any."""

    def __init__(
        self,
        table: Callable[[], TokenTable] = TokenTable,
        send: Send = no_master,
        peers: Peers | None = None,
    ) -> None:
        self._table = table
        self._send = send
        self._peers = peers
        self.uses = TokenUses(table)
        if peers is not None:
            answer_peers(peers, USED, self._answer_used)

    async def create(self, wanted: CreateTokenRequest) -> CreatedToken:
        """Raises ApiError. The answer is the only place where the token stands."""
        token_id, text = new_token()
        now = datetime.now(UTC)
        life = None if wanted.expires_in_s is None else timedelta(seconds=wanted.expires_in_s)
        token = AccessToken(
            token_id=token_id,
            name=wanted.name,
            scopes=wanted.scopes,
            rate=wanted.rate,
            concurrency=wanted.concurrency,
            created=now,
            expires=None if life is None else now + life,
            digest=digest_of(text),
        )
        await self._ask(CREATE, token.model_dump_json(context=WHOLE).encode())
        return CreatedToken(token=text, **token.model_dump())

    async def revoke(self, token: str) -> RevokedToken:
        """By name or id. Raises ApiError."""
        answer = await self._ask(REVOKE, json.dumps({"token": token}).encode())
        return RevokedToken.model_validate_json(answer)

    async def list(self) -> TokenList:
        """All tokens, with the latest use that any node knows of."""
        used = dict(self.uses.last_used())
        silent = []
        asked = (
            []
            if self._peers is None
            else await ask_others(self._peers, USED, deadline_s=USED_DEADLINE_S)
        )
        for one in asked:
            if one.answer is None:
                silent.append(one.peer.name)
                continue
            for key, moment in json.loads(one.answer).items():
                when, token_id = datetime.fromisoformat(moment), TokenId(key)
                used[token_id] = max(when, used.get(token_id, when))
        now = datetime.now(UTC)
        items = [
            TokenItem(
                **token.model_dump(),
                expired=token.expires is not None and token.expires <= now,
                last_used=used.get(token.token_id),
            )
            for token in self._table().all()
        ]
        items.sort(key=lambda item: (item.name, item.created))
        return TokenList(tokens=items, unreachable_nodes=silent)

    async def _ask(self, kind: str, body: bytes) -> bytes:
        try:
            return await self._send(kind, body, DEADLINE_S)
        except PeerRefused as refused:
            status = _STATUS.get(refused.kind, 502)
            headers = {"Retry-After": "5"} if status == 503 else {}
            told = {"kind": refused.kind, "hints": json.loads(refused.data).get("hints", [])}
            raise ApiError(status, str(refused), headers=headers, refusal=told) from refused

    async def _answer_used(self, _body: bytes) -> bytes:
        used = self.uses.last_used()
        return json.dumps({key: moment.isoformat() for key, moment in used.items()}).encode()


def decide_create(node_id: NodeId, table: TokenTable, body: bytes) -> Decision:
    """What the master makes of it. Raises PeerRefused."""
    token = AccessToken.model_validate_json(body)
    if table.named(token.name):
        text = f"there is a token named {token.name} already"
        hint = f"choose another name, or revoke it first: skulkctl token revoke {token.name}"
        raise _refused(node_id, NAME_TAKEN, text, hint)
    if len(table.tokens) >= TOKENS:
        text = f"there are {len(table.tokens)} tokens, and no more than {TOKENS} can be in force"
        raise _refused(node_id, TOO_MANY, text, "revoke some: skulkctl token list")
    return Decision([TokenCreated(token=token)])


def decide_revoke(node_id: NodeId, table: TokenTable, body: bytes) -> Decision:
    """What the master makes of it. Raises PeerRefused."""
    wanted = str(json.loads(body)["token"])
    by_id = table.tokens.get(TokenId(wanted))
    found = table.named(wanted) if by_id is None else [by_id]
    if not found:
        text = f"no token has the name or id {wanted}"
        raise _refused(node_id, UNKNOWN, text, "see those in force: skulkctl token list")
    if len(found) > 1:
        ids = ", ".join(one.token_id for one in found)
        text = f"{len(found)} tokens are named {wanted}, with the ids {ids}"
        raise _refused(node_id, AMBIGUOUS, text, "revoke them by id: skulkctl token revoke ID")
    token = found[0]
    answer = RevokedToken(token_id=token.token_id, name=token.name)
    event = TokenRevoked(token_id=token.token_id, name=token.name)
    return Decision([event], answer.model_dump_json().encode())


def _refused(node_id: NodeId, kind: str, text: str, hint: str) -> PeerRefused:
    return PeerRefused(node_id, kind, text, json.dumps({"hints": [hint]}).encode())

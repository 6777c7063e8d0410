"""Creating, listing and revoking access tokens: commands, so that they count on every node.

A token is made on the node that was asked; the others only ever see its digest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from skulkd.cluster.commands import Commands
from skulkd.cluster.commits import Decision
from skulkd.cluster.token_text import digest_of, new_token
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

LastUsed = Callable[[], Mapping[TokenId, datetime]]


class TokenAdmin:
    """`last_used` are the uses on this node; the other nodes are asked for theirs."""

    def __init__(
        self,
        table: Callable[[], TokenTable],
        commands: Commands,
        peers: Peers,
        last_used: LastUsed,
    ) -> None:
        self._table = table
        self._send = commands.send
        self._peers = peers
        self._last_used = last_used
        peers.serve(USED, self._answer_used)
        me = peers.node_id
        commands.register(CREATE, lambda body, on: decide_create(me, on.tokens, body))
        commands.register(REVOKE, lambda body, on: decide_revoke(me, on.tokens, body))

    async def create(self, request: CreateTokenRequest) -> CreatedToken:
        """The answer is the only place that shows the token itself. Raises PeerRefused."""
        token_id, text = new_token()
        now = datetime.now(UTC)
        life = None if request.expires_in_s is None else timedelta(seconds=request.expires_in_s)
        token = AccessToken(
            token_id=token_id,
            name=request.name,
            scopes=request.scopes,
            rate=request.rate,
            concurrency=request.concurrency,
            created=now,
            expires=None if life is None else now + life,
            digest=digest_of(text),
        )
        await self._send(CREATE, token.model_dump_json(context=WHOLE).encode(), DEADLINE_S)
        return CreatedToken(token=text, **token.model_dump())

    async def revoke(self, token: str) -> RevokedToken:
        """By name or id. Raises PeerRefused."""
        answer = await self._send(REVOKE, json.dumps({"token": token}).encode(), DEADLINE_S)
        return RevokedToken.model_validate_json(answer)

    async def list(self) -> TokenList:
        """All tokens, with the latest use that any node knows of."""
        used = dict(self._last_used())
        silent = []
        for asked in await ask_others(self._peers, USED, deadline_s=USED_DEADLINE_S):
            if asked.answer is None:
                silent.append(asked.peer.name)
                continue
            for key, moment in json.loads(asked.answer).items():
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

    async def _answer_used(self, _asker: NodeId, _body: bytes) -> bytes:
        used = self._last_used()
        return json.dumps({key: moment.isoformat() for key, moment in used.items()}).encode()


def decide_create(node_id: NodeId, table: TokenTable, body: bytes) -> Decision:
    """The master's decision. Raises PeerRefused."""
    token, count = AccessToken.model_validate_json(body), len(table.tokens)
    if table.named(token.name):
        text = f"there is a token named {token.name} already"
        hint = f"choose another name, or revoke it first: skulkctl token revoke {token.name}"
        raise _refused(node_id, NAME_TAKEN, text, hint)
    if count >= TOKENS:
        text = f"there are {count} tokens, and no more than {TOKENS} can be in force"
        raise _refused(node_id, TOO_MANY, text, "revoke some: skulkctl token list")
    return Decision([TokenCreated(token=token)])


def decide_revoke(node_id: NodeId, table: TokenTable, body: bytes) -> Decision:
    """The master's decision. Raises PeerRefused."""
    key = str(json.loads(body)["token"])
    by_id = table.tokens.get(TokenId(key))
    found = table.named(key) if by_id is None else [by_id]
    if not found:
        text = f"no token has the name or id {key}"
        raise _refused(node_id, UNKNOWN, text, "see those in force: skulkctl token list")
    if len(found) > 1:
        ids = ", ".join(token.token_id for token in found)
        text = f"{len(found)} tokens are named {key}, with the ids {ids}"
        raise _refused(node_id, AMBIGUOUS, text, "revoke them by id: skulkctl token revoke ID")
    token = found[0]
    answer = RevokedToken(token_id=token.token_id, name=token.name)
    event = TokenRevoked(token_id=token.token_id, name=token.name)
    return Decision([event], answer.model_dump_json().encode())


def _refused(node_id: NodeId, kind: str, text: str, hint: str) -> PeerRefused:
    return PeerRefused(node_id, kind, text, json.dumps({"hints": [hint]}).encode())

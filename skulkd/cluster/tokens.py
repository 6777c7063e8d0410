"""The replicated table of access tokens: those in force, and those revoked. Pure.

Creations and revocations commute: a revoked token stays revoked. So two histories are merged
without comparing which one is newer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from skulkd.wire.events import Event, TokenCreated, TokenRevoked
from skulkd.wire.ids import TokenId
from skulkd.wire.tokens import AccessToken

TOKENS = 1000
"""Maximum number of tokens in force."""
REVOKED = 4096
"""Maximum number of revocations that are kept; the oldest are dropped."""


class TokenTable:
    """Changed by journal events only, so every node holds the same table."""

    def __init__(self, tokens: Iterable[AccessToken] = (), revoked: Iterable[TokenId] = ()) -> None:
        self._revoked: OrderedDict[TokenId, None] = OrderedDict.fromkeys(revoked)
        self._tokens = {one.token_id: one for one in tokens if one.token_id not in self._revoked}
        self.version = 0
        """Changes with every change of the table."""

    @property
    def tokens(self) -> Mapping[TokenId, AccessToken]:
        """Those in force, the expired included, the oldest first."""
        return self._tokens

    def all(self) -> tuple[AccessToken, ...]:
        return tuple(self._tokens.values())

    def revoked(self) -> tuple[TokenId, ...]:
        return tuple(self._revoked)

    def is_revoked(self, token_id: TokenId) -> bool:
        return token_id in self._revoked

    def named(self, name: str) -> list[AccessToken]:
        """More than one only after two clusters met that had used the same name."""
        return [one for one in self._tokens.values() if one.name == name]

    def copy(self) -> TokenTable:
        """A copy on which events can be tried."""
        other = TokenTable(self._tokens.values(), self._revoked)
        other.version = self.version
        return other

    def replace(self, tokens: Iterable[AccessToken], revoked: Iterable[TokenId]) -> None:
        """Use the table of a snapshot."""
        taken = TokenTable(tokens, revoked)
        self._tokens, self._revoked = taken._tokens, taken._revoked
        self.version += 1

    def apply(self, event: Event) -> None:
        if isinstance(event, TokenCreated):
            if event.token.token_id not in self._revoked:
                self._tokens[event.token.token_id] = event.token
                self.version += 1
        elif isinstance(event, TokenRevoked):
            self._tokens.pop(event.token_id, None)
            self._revoked[event.token_id] = None
            if len(self._revoked) > REVOKED:
                self._revoked.popitem(last=False)
            self.version += 1

    def missing_events(
        self, tokens: Iterable[AccessToken], revoked: Iterable[TokenId]
    ) -> list[Event]:
        """Events that lead to the union of this table and another history's."""
        gone = [one for one in revoked if one not in self._revoked]
        names = {one.token_id: one.name for one in self._tokens.values()}
        events: list[Event] = [TokenRevoked(token_id=one, name=names.get(one, "")) for one in gone]
        known = {*self._tokens, *self._revoked, *gone}
        events += [TokenCreated(token=one) for one in tokens if one.token_id not in known]
        return events

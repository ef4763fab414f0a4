"""Scoped tokens in the database: beside the state, in no backup. Access is not configuration, and a
restored backup must not bring back a token that was deleted because it had leaked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, insert, select

from egressd.model.tokens import ScopedToken
from egressd.store.beside import ConnectionBeside
from egressd.store.schema import tokens


class ScopedTokenStore:
    """The table of tokens. Every method raises Failed."""

    def __init__(self, beside: ConnectionBeside) -> None:
        self._beside = beside

    async def tokens(self) -> Sequence[ScopedToken]:
        """Return all tokens, expired ones too."""
        return await self._beside.do("read the tokens", read_tokens)

    async def put_tokens(self, put: Sequence[ScopedToken]) -> None:
        """Add tokens, or replace those of the same id, durably."""
        await self._beside.do("store a token", lambda c: write_tokens(c, put))

    async def drop_tokens(self, ids: Collection[str]) -> None:
        """Delete tokens by id, durably."""
        dropped = [*ids]
        await self._beside.do("delete a token", lambda c: drop_tokens(c, dropped))


# --- On a connection, inside a transaction. ------------------------------------------------


def read_tokens(connection: Connection) -> list[ScopedToken]:
    """Return all tokens."""
    return [
        msgspec.convert(row, ScopedToken) for row in connection.execute(select(tokens)).mappings()
    ]


def write_tokens(connection: Connection, put: Sequence[ScopedToken]) -> None:
    """Add tokens, or replace those of the same id."""
    drop_tokens(connection, [token.id for token in put])
    for token in put:
        connection.execute(insert(tokens), _row(token))


def drop_tokens(connection: Connection, ids: Collection[str]) -> None:
    """Delete tokens."""
    for id_ in ids:
        connection.execute(delete(tokens).where(tokens.c.id == id_))


def _row(token: ScopedToken) -> dict[str, Any]:
    return msgspec.structs.asdict(token) | {"scopes": list(token.scopes)}
